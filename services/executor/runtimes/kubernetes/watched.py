"""An engine's objects as the cluster's watches report them."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from schemas.executor.attempts import Runtime
from services.executor.runtimes.kubernetes.cluster import MAIN_KIND
from services.executor.runtimes.kubernetes.kinds import WORKLOADS, ObjectWithStatus
from services.executor.runtimes.kubernetes.leader_worker import WORKER_INDEX_LABEL
from shared.kubernetes.client import KubernetesClient
from shared.kubernetes.errors import NOT_FOUND, KubernetesError
from shared.kubernetes.kinds import PODS
from shared.kubernetes.names import Resource, label_selector
from shared.kubernetes.objects.common import MetadataDetails
from shared.kubernetes.objects.pods import PodDetails
from shared.kubernetes.watching import Changed, Interrupted, Listed, Removed, watch
from shared.waiting import cancel_and_wait, wait_for

ISVC_LABEL: Final = "ome.io/inferenceservice"  # that OME puts on pods
_KUEUE: Final = "kueue.x-k8s.io/"
# Conditions of Kueue, by how much they explain; others may be False of what goes on as it should.
_ADMISSION: Final = ("QuotaReserved", "Admitted")


class _HasMetadata(Protocol):
    @property
    def metadata(self) -> MetadataDetails: ...


T = TypeVar("T", bound=_HasMetadata)


@dataclass(slots=True, kw_only=True)
class ObjectWatch(Generic[T]):
    """Objects of one kind by their uid; None until they have been listed.

    `where` is what `watch` takes. With an `error` they may be old.
    """

    client: KubernetesClient
    resource: Resource
    type_: type[T]
    where: Mapping[str, str]
    on_change: Callable[[], None]
    objects: dict[str, T] | None = None
    error: KubernetesError | None = None

    async def run(self) -> None:
        """Watch until cancelled."""
        changes = watch(self.client, self.resource, self.type_, **self.where)
        async with aclosing(changes) as events:
            async for event in events:
                objects = self.objects or {}
                self.error = None
                match event:
                    case Listed(found):
                        objects = {item.metadata.uid: item for item in found}
                    case Changed(found):
                        objects[found.metadata.uid] = found
                    case Removed(found):
                        objects.pop(found.metadata.uid, None)
                    case Interrupted(error) if error.code == NOT_FOUND:  # no such kind any more
                        objects = {}
                    case Interrupted(error):
                        self.error = error
                        self.on_change()
                        continue
                self.objects = objects
                self.on_change()


@dataclass(slots=True, kw_only=True)
class EngineObjects:
    """Of one attempt: its workload by its name, its pods by their labels, and while an admission
    queue holds them what that says. Nothing is watched before `follow`, nor after `close`.
    """

    client: KubernetesClient
    kind: Runtime
    namespace: str
    name: str
    labels: Mapping[str, str]
    _workloads: ObjectWatch[ObjectWithStatus] = field(init=False)
    _pods: list[ObjectWatch[PodDetails]] = field(init=False)
    _admission: ObjectWatch[ObjectWithStatus] = field(init=False)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: "list[asyncio.Task[None]]" = field(default_factory=list)
    _asking: "asyncio.Task[None] | None" = None

    def __post_init__(self) -> None:
        self._workloads = self._make_watch(
            MAIN_KIND[self.kind], ObjectWithStatus, fields=f"metadata.name={self.name}"
        )
        selectors = [label_selector(self.labels)]
        if self.kind is Runtime.OME:  # which may have left out what we gave it
            of_rank = {k: v for k, v in self.labels.items() if k == WORKER_INDEX_LABEL}
            selectors.append(label_selector({ISVC_LABEL: self.name, **of_rank}))
        self._pods = [self._make_watch(PODS, PodDetails, labels=selector) for selector in selectors]
        self._admission = self._make_watch(WORKLOADS, ObjectWithStatus)

    @property
    def is_known(self) -> bool:
        return all(source.objects is not None for source in self._sources)

    @property
    def error(self) -> KubernetesError | None:
        """The error because of which the objects may be outdated."""
        return next((source.error for source in self._sources if source.error is not None), None)

    @property
    def workload(self) -> ObjectWithStatus | None:
        return next(iter((self._workloads.objects or {}).values()), None)

    @property
    def pods(self) -> tuple[PodDetails, ...]:
        """The pods with its labels, and those that OME made of it, whatever their labels."""
        pods_by_uid = {
            uid: pod for watch in self._pods for uid, pod in (watch.objects or {}).items()
        }
        return tuple(pods_by_uid.values())

    def follow(self) -> None:
        if not self._tasks:
            self._tasks = [
                asyncio.create_task(source.run(), name="watch_engine") for source in self._sources
            ]
            for task in self._tasks:
                task.add_done_callback(lambda _: self._changed.set())

    def admission(self) -> str:
        """The reason for which Kueue holds the workload; empty if nothing does, and without
        Kueue.
        """
        workload, pods = self.workload, self.pods
        if workload is None or not _is_held(workload, pods):
            if self._asking is not None:
                self._asking.cancel()
                self._tasks.append(self._asking)
                self._asking = None
            return ""
        if self._asking is None:
            self._asking = asyncio.create_task(self._admission.run(), name="watch_admission")
        uids = {workload.metadata.uid, *(pod.metadata.uid for pod in pods)}
        for admission_object in (self._admission.objects or {}).values():
            if not uids.isdisjoint(
                owner.uid for owner in admission_object.metadata.owner_references
            ):
                return _why_held(admission_object)
        return ""

    async def change(self, seconds: float | None = None) -> None:
        """Wait for one since the last call, or as long as that."""
        await wait_for(self._changed, seconds)
        self._changed.clear()
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()  # raises: no watch ends by itself

    async def close(self) -> None:
        """Forget it: it is gone."""
        if self._asking is not None:
            self._tasks.append(self._asking)
        await cancel_and_wait(*self._tasks)
        for source in self._sources:
            source.objects, source.error = {}, None
        self._changed.set()

    @property
    def _sources(self) -> "list[ObjectWatch[ObjectWithStatus] | ObjectWatch[PodDetails]]":
        return [self._workloads, *self._pods]

    def _make_watch(self, resource: Resource, type_: type[T], **where: str) -> ObjectWatch[T]:
        return ObjectWatch(
            client=self.client,
            resource=resource,
            type_=type_,
            where={"namespace": self.namespace, **where},
            on_change=self._changed.set,
        )


def _is_held(workload: ObjectWithStatus, pods: tuple[PodDetails, ...]) -> bool:
    """Return whether an admission queue may know why nothing goes on."""
    gates = {gate.name for pod in pods for gate in pod.spec.scheduling_gates}
    has_queue = any(name.startswith(_KUEUE) for name in workload.metadata.labels)
    return (has_queue and not pods) or any(gate.startswith(_KUEUE) for gate in gates)


def _why_held(admission: ObjectWithStatus) -> str:
    messages = {c.type: c.message for c in admission.status.conditions if c.status == "False"}
    best = (messages.get(condition_type) for condition_type in _ADMISSION)
    return next(filter(None, (*best, *messages.values())), "")
