"""The Secret of one attempt: what its engine's pods are given of its task's secrets, and the key
and certificate of its server.

It is made after what makes the pods, whose it is, and goes with it: the executor needs no right to
read or to delete a Secret. Kubelet waits for it.
"""

from typing import Any

from schemas.executor.attempts import StartExperiment
from services.executor.runtimes.kubernetes.kinds import Object
from services.executor.runtimes.kubernetes.plan import Plan, finding_labels, workload_name
from services.executor.runtimes.kubernetes.tls import tls_data
from services.executor.runtimes.runtime import Launch
from services.executor.settings import ExecutorSettings
from shared.labels import ATTEMPT_LABEL


def secret_variables(launch: Launch) -> list[dict[str, Any]]:
    """Return the container's variables that refer to the Secret."""
    name = workload_name(launch.command)
    return [
        {"name": variable, "valueFrom": {"secretKeyRef": {"name": name, "key": variable}}}
        for variable in launch.secrets
    ]


def secret_data(launch: Launch, plan: Plan) -> dict[str, str]:
    """Return what is in the Secret; there is none without."""
    return {**launch.secrets, **tls_data(plan.tls)}


def owns_secret(made: Object, command: StartExperiment) -> bool:
    """Return whether an object is the one that makes the first pod: the Secret goes with it."""
    is_first = made["metadata"]["name"] == workload_name(command)
    return is_first and made["kind"] in {"Deployment", "InferenceService"}


def secret_object(
    launch: Launch, plan: Plan, settings: ExecutorSettings, owner: Object, owner_uid: str
) -> Object:
    """Return the Secret, whose owner has been made."""
    name = workload_name(launch.command)
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner_uid,
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": plan.namespace,
            "labels": {
                **finding_labels(settings, plan.kind, launch.labels),
                ATTEMPT_LABEL: str(launch.command.attempt_id),
            },
            "ownerReferences": [reference],
        },
        "immutable": True,
        "stringData": secret_data(launch, plan),
    }
