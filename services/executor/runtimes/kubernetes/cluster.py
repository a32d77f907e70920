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
    PODS,
    RESOURCE_OF_KIND,
    SERVICES,
    Named,
    NamedList,
    Object,
)
from services.executor.settings import ExecutorSettings
from shared.kubernetes.access import ClusterAccess
from shared.kubernetes.client import KubernetesClient, decoded
from shared.kubernetes.errors import (
    CONFLICT,
    FORBIDDEN,
    INTERNAL_ERROR,
    NOT_FOUND,
    UNPROCESSABLE,
    KubernetesError,
    KubernetesUnavailable,
)
from shared.kubernetes.names import Resource, label_selector
from shared.kubernetes.ome import INFERENCE_SERVICES, SERVING_RUNTIMES
from shared.labels import EPOCH_LABEL

FIELD_MANAGER: Final = "gpusteward"
PATIENCE_SECONDS: Final = 30.0
AGAIN_SECONDS: Final = 0.5
# Of each runtime, what makes pods first: whatever else there is goes when no pod is left.
MAIN_KIND: Final = {Runtime.OME: INFERENCE_SERVICES, Runtime.KUBERNETES: DEPLOYMENTS}
OTHER_KINDS: Final = {
    Runtime.OME: (SERVING_RUNTIMES, CLAIM_TEMPLATES),
    Runtime.KUBERNETES: (SERVICES, CLAIM_TEMPLATES),
}
_HINTS: Final = {
    0: "the cluster's API does not answer: check its address in the kubeconfig, and the network",
    FORBIDDEN: "the executor's service account lacks a right, or a policy of the cluster refuses: "
    "`gpusteward doctor` lists the rights that it needs, compose/kubernetes has the roles",
    NOT_FOUND: "the cluster has no such namespace, or no OME: `kubectl get namespaces` and "
    "`kubectl get crds` tell",
    INTERNAL_ERROR: "a webhook of the cluster does not answer: `kubectl get "
    "validatingwebhookconfigurations,mutatingwebhookconfigurations` lists them",
}
T = TypeVar("T")


class Found(Struct, frozen=True):
    """An object of ours."""

    resource: Resource
    named: Named


class Cluster:
    """The calls. What is not there is empty or None; everything else raises KubernetesError."""

    def __init__(self, settings: ExecutorSettings) -> None:
        self.settings = settings
        self.client = KubernetesClient(
            ClusterAccess(kubeconfig=settings.kubeconfig, context=settings.kube_context)
        )

    @property
    def namespaces(self) -> tuple[str, ...]:
        """All in which engines of this executor may be."""
        settings = self.settings
        named = [each for entry in entries(settings) for each in entry[1:]]
        return tuple(dict.fromkeys((settings.cluster_namespace, *named)))

    async def read(
        self, resource: Resource, name: str, type_: type[T], *, namespace: str | None = None
    ) -> T | None:
        try:
            return await self.client.get(resource, name, type_, namespace=namespace)
        except KubernetesError as error:
            if error.code == NOT_FOUND:
                return None
            raise

    async def listed(
        self, resource: Resource, type_: type[T], labels: Mapping[str, str], namespace: str
    ) -> T:
        """Of one namespace, by labels; empty where the cluster has no such kind."""
        path = resource.path(namespace)
        try:
            body = await self.client.call(
                "GET", path, params={"labelSelector": label_selector(labels)}
            )
        except KubernetesError as error:
            if error.code != NOT_FOUND:
                raise
            body = b"{}"
        return decoded(body, type_)

    async def found(self, resources: Sequence[Resource], labels: Mapping[str, str]) -> list[Found]:
        """Everything with these labels, in every namespace of this executor."""
        places = [(each, namespace) for each in resources for namespace in self.namespaces]
        lists = await asyncio.gather(
            *(self.listed(each, NamedList, labels, namespace) for each, namespace in places)
        )
        return [
            Found(resource, named)
            for (resource, _), listed in zip(places, lists, strict=True)
            for named in listed.items
        ]

    async def found_of(self, kind: Runtime, labels: Mapping[str, str]) -> list[Found]:
        """All that a runtime makes, pods last."""
        return await self.found((MAIN_KIND[kind], *OTHER_KINDS[kind], PODS), labels)

    async def apply(self, made: Object, finding: Mapping[str, str], epoch: int) -> None:
        """Make it, or bring one of the same attempt to this form. Raises AttemptFailed."""
        resource = RESOURCE_OF_KIND[made["kind"]]
        await self.patiently(
            lambda: self._apply_once(resource, made, finding, epoch),
            f"{made['kind']} {_title(made)}",
        )

    async def patiently(self, call: Callable[[], Awaitable[T]], what: str) -> T:
        """Call again while the cluster does not answer, for a while. Raises AttemptFailed."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while True:
            try:
                return await call()
            except KubernetesError as error:
                late = asyncio.get_running_loop().time() > deadline
                is_passing = isinstance(error, KubernetesUnavailable) or error.code == CONFLICT
                if late or not is_passing:
                    raise refusal(error, what) from error
                await asyncio.sleep(AGAIN_SECONDS)

    async def _apply_once(
        self, resource: Resource, made: Object, finding: Mapping[str, str], epoch: int
    ) -> None:
        metadata = made["metadata"]
        there = await self.read(resource, metadata["name"], Named, namespace=metadata["namespace"])
        if there is not None:
            _require_ours(there, made, finding, epoch)
            # Refused if it was changed since it was read.
            metadata = {**metadata, "resourceVersion": there.metadata.resource_version}
        await self.client.apply(
            resource,
            {**made, "metadata": metadata},
            field_manager=FIELD_MANAGER,
            force=there is not None,
        )

    async def close(self) -> None:
        await self.client.close()


def entries(settings: ExecutorSettings) -> list[tuple[str | None, str]]:
    """Which namespaces tasks may name: ours, None for any, and the cluster's."""
    found: list[tuple[str | None, str]] = []
    for entry in filter(None, (each.strip() for each in settings.cluster_namespaces.split(","))):
        ours, colon, named = entry.rpartition(":")
        found.append((ours if colon else None, named))
    return found


def namespaces_for(settings: ExecutorSettings, ours: str) -> tuple[str, ...]:
    """Those of the cluster that tasks of our namespace may name."""
    allowed = [named for whose, named in entries(settings) if whose in {None, ours}]
    return tuple(allowed) if entries(settings) else (settings.cluster_namespace,)


def refusal(error: KubernetesError, what: str) -> AttemptFailed:
    """What the cluster's refusal of `what` means for the attempt."""
    kind, hint = FailureKind.RUNTIME_UNAVAILABLE, _HINTS.get(error.code, "")
    if error.code == UNPROCESSABLE:
        kind = FailureKind.BAD_PARAMETER
    return AttemptFailed(failure(kind, f"the cluster does not take {what}: {error}", hint=hint))


def _require_ours(there: Named, made: Object, finding: Mapping[str, str], epoch: int) -> None:
    labels, title = there.metadata.labels, f"{made['kind']} {_title(made)}"
    standing = there.metadata.annotations.get(EPOCH_LABEL, "")
    if standing.isdigit() and int(standing) > epoch:
        message = f"{title} has epoch {standing}, this attempt {epoch}: another one holds it now"
        raise AttemptFailed.of(FailureKind.LEASE_LOST, message)
    if any(labels.get(name) != value for name, value in finding.items()):
        message = f"{title} is there already, and is not this attempt's"
        raise AttemptFailed.of(FailureKind.RUNTIME_UNAVAILABLE, message)


def _title(made: Object) -> str:
    return f"{made['metadata']['namespace']}/{made['metadata']['name']}"
