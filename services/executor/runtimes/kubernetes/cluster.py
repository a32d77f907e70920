"""One cluster, as this executor may use it: listing what is ours, making it, reporting why not."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

from msgspec import Struct

from schemas.executor.attempts import FailureKind, Runtime
from services.executor.domain.verdict import AttemptFailed, failure
from services.executor.runtimes.kubernetes.kinds import (
    CLAIM_TEMPLATES,
    DEPLOYMENTS,
    RESOURCE_OF_KIND,
    SECRETS,
    Object,
)
from services.executor.settings import ExecutorSettings
from shared.kubernetes.access import ClusterAccess
from shared.kubernetes.client import KubernetesClient, decode
from shared.kubernetes.errors import (
    CONFLICT,
    FORBIDDEN,
    INTERNAL_ERROR,
    NOT_FOUND,
    UNPROCESSABLE,
    KubernetesError,
    KubernetesUnavailable,
)
from shared.kubernetes.kinds import PODS, SERVICES
from shared.kubernetes.names import Resource, label_selector
from shared.kubernetes.objects.common import NamedObject, ObjectList
from shared.kubernetes.ome import INFERENCE_SERVICES, SERVING_RUNTIMES
from shared.labels import EPOCH_LABEL

FIELD_MANAGER: Final = "gpusteward"
TIMEOUT_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 0.5
# Of each runtime, what makes pods first: whatever else there is goes when no pod is left.
MAIN_KIND: Final = {Runtime.OME: INFERENCE_SERVICES, Runtime.KUBERNETES: DEPLOYMENTS}
OTHER_KINDS: Final = {
    Runtime.OME: (SERVING_RUNTIMES, CLAIM_TEMPLATES),
    Runtime.KUBERNETES: (SERVICES, CLAIM_TEMPLATES),
}
_HINTS: Final = {
    0: "the cluster's API does not answer: check its address in the kubeconfig, and the network",
    FORBIDDEN: "the executor's service account lacks a right, or a policy of the cluster refuses: "
    "`gpusteward doctor` lists the rights that it needs, the chart (`gpusteward chart`) has roles",
    NOT_FOUND: "the cluster has no such namespace, or no OME: `kubectl get namespaces` and "
    "`kubectl get crds` tell",
    INTERNAL_ERROR: "a webhook of the cluster does not answer: `kubectl get "
    "validatingwebhookconfigurations,mutatingwebhookconfigurations` lists them",
}
T = TypeVar("T")


class FoundObject(Struct, frozen=True):
    """An object of ours."""

    resource: Resource
    item: NamedObject


class Cluster:
    """The calls. What is not there is empty or None; everything else raises KubernetesError."""

    def __init__(self, settings: ExecutorSettings) -> None:
        self.settings = settings
        self.client = KubernetesClient(
            ClusterAccess(kubeconfig=settings.kubeconfig, context=settings.kube_context)
        )

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The namespaces in which engines of this executor may be."""
        settings = self.settings
        visible_namespaces = [namespace for entry in entries(settings) for namespace in entry[1:]]
        return tuple(dict.fromkeys((settings.cluster_namespace, *visible_namespaces)))

    async def read(
        self, resource: Resource, name: str, type_: type[T], *, namespace: str | None = None
    ) -> T | None:
        try:
            return await self.client.get(resource, name, type_, namespace=namespace)
        except KubernetesError as error:
            if error.code == NOT_FOUND:
                return None
            raise

    async def list_objects(
        self, resource: Resource, type_: type[T], labels: Mapping[str, str], namespace: str
    ) -> T:
        """List the objects of one namespace by labels; empty if the cluster has no such kind."""
        path = resource.path(namespace)
        try:
            body = await self.client.call(
                "GET", path, params={"labelSelector": label_selector(labels)}
            )
        except KubernetesError as error:
            if error.code != NOT_FOUND:
                raise
            body = b"{}"
        return decode(body, type_)

    async def find(
        self, resources: Sequence[Resource], labels: Mapping[str, str]
    ) -> list[FoundObject]:
        """Return all objects with these labels, in every namespace of this executor."""
        places = [(resource, namespace) for resource in resources for namespace in self.namespaces]
        lists = await asyncio.gather(
            *(
                self.list_objects(resource, ObjectList[NamedObject], labels, namespace)
                for resource, namespace in places
            )
        )
        return [
            FoundObject(resource, item)
            for (resource, _), listed in zip(places, lists, strict=True)
            for item in listed.items
        ]

    async def find_of_kind(self, kind: Runtime, labels: Mapping[str, str]) -> list[FoundObject]:
        """Return all objects that a runtime makes, pods last."""
        return await self.find((MAIN_KIND[kind], *OTHER_KINDS[kind], PODS), labels)

    async def apply(self, made: Object, finding: Mapping[str, str], epoch: int) -> str:
        """Make it, or bring one of the same attempt to this form; its uid. Raises AttemptFailed."""
        resource = RESOURCE_OF_KIND[made["kind"]]
        return await self.patiently(
            lambda: self._apply_once(resource, made, finding, epoch),
            f"{made['kind']} {_title(made)}",
        )

    async def make_secret(self, secret: Object) -> None:
        """Make a Secret, which this executor may not read. Raises AttemptFailed."""
        namespace, is_first = secret["metadata"]["namespace"], True

        async def create() -> None:
            nonlocal is_first
            was_first, is_first = is_first, False
            try:
                await self.client.create(SECRETS, secret, namespace=namespace)
            except KubernetesError as error:
                if error.code != CONFLICT:
                    raise
                if was_first:
                    raise refusal(error, f"Secret {_title(secret)}") from error
                # It was made before, by a call that was not answered.

        await self.patiently(create, f"Secret {_title(secret)}")

    async def patiently(self, call: Callable[[], Awaitable[T]], what: str) -> T:
        """Call again while the cluster does not answer, for a while. Raises AttemptFailed."""
        deadline = asyncio.get_running_loop().time() + TIMEOUT_SECONDS
        while True:
            try:
                return await call()
            except KubernetesError as error:
                is_late = asyncio.get_running_loop().time() > deadline
                is_passing = isinstance(error, KubernetesUnavailable) or error.code == CONFLICT
                if is_late or not is_passing:
                    raise refusal(error, what) from error
                await asyncio.sleep(RETRY_SECONDS)

    async def _apply_once(
        self, resource: Resource, made: Object, finding: Mapping[str, str], epoch: int
    ) -> str:
        metadata = made["metadata"]
        existing_object = await self.read(
            resource, metadata["name"], NamedObject, namespace=metadata["namespace"]
        )
        if existing_object is not None:
            _require_ours(existing_object, made, finding, epoch)
            # Refused if it was changed since it was read.
            metadata = {**metadata, "resourceVersion": existing_object.metadata.resource_version}
        applied = await self.client.apply(
            resource,
            {**made, "metadata": metadata},
            field_manager=FIELD_MANAGER,
            force=existing_object is not None,
        )
        return decode(applied, NamedObject).metadata.uid

    async def close(self) -> None:
        await self.client.close()


def entries(settings: ExecutorSettings) -> list[tuple[str | None, str]]:
    """Return which namespaces tasks may name: ours, None for any, and the cluster's."""
    pairs: list[tuple[str | None, str]] = []
    for entry in filter(None, (part.strip() for part in settings.cluster_namespaces.split(","))):
        task_namespace, colon, cluster_namespace = entry.rpartition(":")
        pairs.append((task_namespace if colon else None, cluster_namespace))
    return pairs


def namespaces_for(settings: ExecutorSettings, task_namespace: str) -> tuple[str, ...]:
    """Return the namespaces of the cluster that tasks of our namespace may name."""
    allowed = [
        cluster_namespace
        for whose, cluster_namespace in entries(settings)
        if whose in {None, task_namespace}
    ]
    return tuple(allowed) if entries(settings) else (settings.cluster_namespace,)


def refusal(error: KubernetesError, what: str) -> AttemptFailed:
    """Return the attempt's failure for the cluster's refusal of `what`."""
    kind, hint = FailureKind.RUNTIME_UNAVAILABLE, _HINTS.get(error.code, "")
    if error.code == UNPROCESSABLE:
        kind = FailureKind.BAD_PARAMETER
    return AttemptFailed(failure(kind, f"the cluster does not take {what}: {error}", hint=hint))


def _require_ours(
    existing_object: NamedObject, made: Object, finding: Mapping[str, str], epoch: int
) -> None:
    labels, title = existing_object.metadata.labels, f"{made['kind']} {_title(made)}"
    standing = existing_object.metadata.annotations.get(EPOCH_LABEL, "")
    if standing.isdigit() and int(standing) > epoch:
        message = f"{title} has epoch {standing}, this attempt {epoch}: another one holds it now"
        raise AttemptFailed.of(FailureKind.LEASE_LOST, message)
    if any(labels.get(name) != value for name, value in finding.items()):
        message = f"{title} is there already, and is not this attempt's"
        raise AttemptFailed.of(FailureKind.RUNTIME_UNAVAILABLE, message)


def _title(made: Object) -> str:
    return f"{made['metadata']['namespace']}/{made['metadata']['name']}"
