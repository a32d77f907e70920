"""What a LeaderWorkerSet's controller makes of one replica: its leader's pod, then its workers'.

A stand-in's knowledge, pure, by LeaderWorkerSet's documentation (v0.7): the StatefulSets between
are left out, and so is starting a group anew when one of its pods has ended.
"""

import copy
from typing import Final

from shared.kubernetes.errors import NOT_FOUND
from shared.testing import eventually
from tests.support.kubernetes.api import Api, ApiError, Object, path_to

SETS_GROUP: Final = "leaderworkerset.x-k8s.io"
SETS_VERSION: Final = f"{SETS_GROUP}/v1"
LABELS: Final = "leaderworkerset.sigs.k8s.io/"
CRD_PATH: Final = path_to(
    "apiextensions.k8s.io/v1", "CustomResourceDefinition", name=f"leaderworkersets.{SETS_GROUP}"
)


def leader_template(leader_worker_set: Object) -> Object:
    template: Object = leader_worker_set["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
    return template


def pods_of(leader_worker_set: Object) -> list[Object]:
    """Return the pods of its one replica by their index."""
    metadata, template = leader_worker_set["metadata"], leader_worker_set["spec"]
    template = template["leaderWorkerTemplate"]
    leader = f"{metadata['name']}-0"
    given = {
        "LWS_LEADER_ADDRESS": f"{leader}.{metadata['name']}.{metadata['namespace']}",
        "LWS_GROUP_SIZE": str(template["size"]),
    }
    pods = []
    for index in range(template["size"]):
        made = copy.deepcopy(template["workerTemplate" if index else "leaderTemplate"])
        for container in made["spec"]["containers"]:
            variables = given | {"LWS_WORKER_INDEX": str(index)}
            first = [{"name": name, "value": value} for name, value in variables.items()]
            container["env"] = [*first, *container.get("env", [])]
        own_labels = {
            f"{LABELS}name": metadata["name"],
            f"{LABELS}group-index": "0",
            f"{LABELS}worker-index": str(index),
        }
        pods.append(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    **made["metadata"],
                    "name": f"{leader}-{index}" if index else leader,
                    "namespace": metadata["namespace"],
                    "labels": made["metadata"]["labels"] | own_labels,
                    "ownerReferences": metadata["ownerReferences"],
                },
                "spec": {"subdomain": metadata["name"], **made["spec"]},
            }
        )
    return pods


async def install_kind(api: Api) -> None:
    """Have the cluster serve the kind, with whatever fields."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": anything},
    }
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"leaderworkersets.{SETS_GROUP}"},
        "spec": {
            "group": SETS_GROUP,
            "names": {"kind": "LeaderWorkerSet", "plural": "leaderworkersets"},
            "scope": "Namespaced",
            "versions": [version],
        },
    }
    await api.apply(definition, manager="test")

    async def is_served() -> bool:
        try:
            await api.get(path_to(SETS_VERSION, "LeaderWorkerSet"), limit=1)
        except ApiError as error:
            if error.code != NOT_FOUND:
                raise
            return False
        return True

    await eventually(is_served, within_seconds=60, what="LeaderWorkerSets to be served")
