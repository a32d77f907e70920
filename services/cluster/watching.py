"""Watches what a cluster's view is made of, and knows whether any of it is missing."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

from services.cluster.domain.cluster_state import ClusterState
from services.cluster.domain.custom_devices import CustomDevices
from services.cluster.pod_index import PodIndex
from shared.accelerator_rules.device_config import DEVICE_DEFINITIONS, NAMESPACE
from shared.clock import utcnow
from shared.kubernetes.client import KubernetesClient
from shared.kubernetes.errors import FORBIDDEN, NOT_FOUND, KubernetesError, KubernetesUnavailable
from shared.kubernetes.kinds import CONFIG_MAPS, NODES, PODS
from shared.kubernetes.names import Resource
from shared.kubernetes.objects.common import ConfigMap
from shared.kubernetes.objects.devices import DeviceClass, ResourceClaim, ResourceSlice
from shared.kubernetes.objects.nodes import Node
from shared.kubernetes.objects.pods import Pod
from shared.kubernetes.watching import Changed, Interrupted, Listed, Removed, watch
from shared.logging import log
from shared.waiting import within

SLICES: Final = Resource("resource.k8s.io/v1", "resourceslices", is_namespaced=False)
CLAIMS: Final = Resource("resource.k8s.io/v1", "resourceclaims")
CLASSES: Final = Resource("resource.k8s.io/v1", "deviceclasses", is_namespaced=False)
# Finished ones too: of one that leaves a selection the API tells how it was before.
BOUND: Final = "spec.nodeName!="
UNKNOWN_KIND: Final = frozenset({NOT_FOUND})
MISSED_HEARTBEATS: Final = 2
LISTING: Final = "is being listed"


class _CountedResourcesChanged(Exception):
    """What counts as a GPU has changed: everything is listed anew."""


@dataclass(frozen=True, slots=True)
class _Source:
    """One kind of object, and where it goes. After a refusal in `optional` there are none."""

    resource: Resource
    type: type[Any]
    replace: Callable[[Iterable[Any]], None]
    apply: Callable[[Any], None]
    remove: Callable[[Any], None]
    optional: frozenset[int] = frozenset()
    where: Mapping[str, str] = field(default_factory=dict)


class ClusterWatch:
    """Feeds the state, and calls `on_change` after every change of it or of its completeness."""

    def __init__(
        self,
        client: KubernetesClient,
        state: ClusterState,
        pods: PodIndex,
        *,
        heartbeat_seconds: float,
        on_change: Callable[[], None],
    ) -> None:
        self.kubernetes_version = ""
        self._client = client
        self._state = state
        self._pods = pods
        self._heartbeat_seconds = heartbeat_seconds
        self._on_change = on_change
        self._classes: set[str] = set()
        self._devices = CustomDevices()
        self._sources = self._make_sources()
        self._problems = {source.resource.plural: LISTING for source in self._sources}

    @property
    def is_complete(self) -> bool:
        return not self._problems

    @property
    def is_listing(self) -> bool:
        """True until each resource has been listed once."""
        return LISTING in self._problems.values()

    @property
    def detail(self) -> str:
        """The missing parts of the view; of a complete one the parts that it does not count."""
        if self._problems:
            return "; ".join(f"{what}: {why}" for what, why in sorted(self._problems.items()))
        return "; ".join(
            [
                *self._state.pools.incomplete(),
                *self._find_unasked_drivers(),
                *self._devices.violations,
            ]
        )

    async def run(self) -> None:
        """Watch until cancelled. Raises KubernetesUnavailable after two heartbeats without an
        answer, so that connections which died in silence are made anew. Raises
        KubernetesUnavailable after two heartbeats without an answer, so that connections which
        died in silence are made anew.
        """
        while True:
            try:
                async with asyncio.TaskGroup() as group:
                    for source in self._sources:
                        group.create_task(self._follow(source))
                    group.create_task(self._beat())
            except* _CountedResourcesChanged:
                log.info("counted_devices_changed", resources=sorted(self._devices.resources))
            except* KubernetesUnavailable as errors:
                raise errors.exceptions[0] from None

    async def _follow(self, source: _Source) -> None:
        async with aclosing(
            watch(self._client, source.resource, source.type, **source.where)
        ) as events:
            async for event in events:
                match event:
                    case Listed(objects):
                        source.replace(objects)
                        self._resolve(source.resource.plural)
                    case Changed(found):
                        source.apply(found)
                    case Removed(found):
                        source.remove(found)
                    case Interrupted(error):
                        self._note_interruption(source, error)
                    case _:
                        self._resolve(source.resource.plural)
                self._on_change()

    def _note_interruption(self, source: _Source, error: KubernetesError) -> None:
        if error.code in source.optional:
            source.replace(())
            self._resolve(source.resource.plural)
        else:
            self._report(source.resource.plural, str(error))

    async def _beat(self) -> None:
        missed = 0
        while True:
            try:
                async with within(self._heartbeat_seconds):
                    self.kubernetes_version = await self._client.version()
                missed = 0
                self._resolve("api")
            except TimeoutError:
                missed += 1
                self._report("api", f"no answer within {self._heartbeat_seconds:g} s")
            except KubernetesError as error:
                missed += isinstance(error, KubernetesUnavailable)
                self._report("api", str(error))
            self._on_change()
            if missed >= MISSED_HEARTBEATS:
                raise KubernetesUnavailable(0, "Silent", "the cluster's API does not answer")
            await asyncio.sleep(self._heartbeat_seconds)

    def _report(self, what: str, why: str) -> None:
        if self._problems.get(what) != why:
            log.warning("cluster_incomplete", part=what, reason=why)
            self._problems[what] = why

    def _resolve(self, what: str) -> None:
        if self._problems.pop(what, None) not in {None, LISTING}:
            log.info("cluster_part_complete", part=what)

    def _find_unasked_drivers(self) -> list[str]:
        return [
            f"no DeviceClass is named {driver}: no claim can ask for its GPUs by that name"
            for driver in sorted(self._state.pools.drivers - self._classes)
        ]

    def _make_sources(self) -> tuple[_Source, ...]:
        state, classes = self._state, self._classes
        return (
            _Source(
                NODES,
                Node,
                state.replace_nodes,
                state.apply_node,
                lambda gone: state.remove_node(gone.metadata.name),
            ),
            _Source(
                PODS,
                Pod,
                self._replace_pods,
                self._apply_pod,
                self._remove_pod,
                where={"fields": BOUND},
            ),
            _Source(
                SLICES,
                ResourceSlice,
                state.replace_slices,
                state.apply_slice,
                lambda gone: state.remove_slice(gone.metadata.name),
                optional=UNKNOWN_KIND,
            ),
            _Source(
                CLAIMS,
                ResourceClaim,
                state.replace_claims,
                state.apply_claim,
                lambda gone: state.remove_claim((gone.metadata.namespace, gone.metadata.name)),
                optional=UNKNOWN_KIND,
            ),
            _Source(
                CLASSES,
                DeviceClass,
                self._replace_classes,
                lambda device_class: classes.add(device_class.metadata.name),
                lambda gone: classes.discard(gone.metadata.name),
                optional=UNKNOWN_KIND,
            ),
            _Source(
                CONFIG_MAPS,
                ConfigMap,
                self._replace_devices,
                self._apply_device,
                self._remove_device,
                optional=UNKNOWN_KIND | {FORBIDDEN},
                where={"namespace": NAMESPACE, "labels": DEVICE_DEFINITIONS},
            ),
        )

    def _replace_devices(self, config_maps: Iterable[ConfigMap]) -> None:
        self._devices.replace(config_maps)
        self._count_devices()

    def _apply_device(self, config_map: ConfigMap) -> None:
        self._devices.apply(config_map)
        self._count_devices()

    def _remove_device(self, gone: ConfigMap) -> None:
        self._devices.remove(gone.metadata.name)
        self._count_devices()

    def _count_devices(self) -> None:
        """Raises _CountedResourcesChanged."""
        if self._state.count_devices(self._devices.resources):
            # What pods hold of them is unknown until both are listed again.
            self._problems |= {resource.plural: LISTING for resource in (NODES, PODS)}
            raise _CountedResourcesChanged

    def _replace_pods(self, pods: Iterable[Pod]) -> None:
        pod_list = list(pods)
        self._state.replace_pods(pod_list, utcnow(), self._pods.agents.keys())
        self._pods.replace(pod_list)

    def _apply_pod(self, pod: Pod) -> None:
        self._state.apply_pod(pod)
        self._pods.apply(pod)

    def _remove_pod(self, gone: Pod) -> None:
        self._state.delete_pod(gone, utcnow())
        self._pods.remove(gone.metadata)

    def _replace_classes(self, device_classes: Iterable[DeviceClass]) -> None:
        self._classes.clear()
        self._classes |= {device_class.metadata.name for device_class in device_classes}
