"""What a cluster lacks for engines of ours, a sentence and a next step for each thing."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct, to_builtins

from schemas.executor.attempts import Runtime
from schemas.gpus.checks import ResourceDefinition
from services.executor.engines.image import EngineImage
from services.executor.runtimes.kubernetes.cluster import Cluster
from services.executor.runtimes.kubernetes.kinds import DEFINITIONS, OME_GROUP, ServingRuntime
from services.executor.runtimes.kubernetes.references import engine_of_runner
from shared.accelerator_rules.device_config import DEVICE_DEFINITIONS, definitions_in
from shared.accelerator_rules.device_config import NAMESPACE as DEVICES_NAMESPACE
from shared.kubernetes.client import decode
from shared.kubernetes.errors import FORBIDDEN, NOT_FOUND, KubernetesError
from shared.kubernetes.kinds import CONFIG_MAPS
from shared.kubernetes.objects.common import ConfigMap, ObjectList
from shared.kubernetes.ome import (
    CLUSTER_RUNTIMES,
    INFERENCE_SERVICES,
    OME_VERSION,
    SERVING_RUNTIMES,
)
from shared.kubernetes.requirements import (
    ENGINE_RIGHTS,
    EXECUTOR_RIGHTS,
    OLDEST,
    OME_CLUSTER_RIGHTS,
    OME_RIGHTS,
    OUR_FIELDS,
    POD_RIGHTS,
    Right,
    is_too_old,
    unknown_fields,
)
from shared.kubernetes.watching import list_objects
from shared.waiting import within

OFFER_SECONDS: Final = 1.8
FRESH_SECONDS: Final = 20.0
INSPECT_SECONDS: Final = 15.0

# In each namespace of engines, and in the cluster as a whole.
RIGHTS: Final[Mapping[Runtime, tuple[Right, ...]]] = {
    Runtime.OME: (*POD_RIGHTS, *OME_RIGHTS),
    Runtime.KUBERNETES: ENGINE_RIGHTS,
}
CLUSTER_RIGHTS: Final[Mapping[Runtime, tuple[Right, ...]]] = {
    Runtime.OME: (*EXECUTOR_RIGHTS, *OME_CLUSTER_RIGHTS),
    Runtime.KUBERNETES: EXECUTOR_RIGHTS,
}


class PreflightResult(Struct, frozen=True, kw_only=True):
    """`says` is what is missing, in sentences; `is_unable`: without it no engine can run."""

    says: str = ""
    is_unable: bool = False
    version: str | None = None
    serving_runtimes: dict[str, str] = {}
    devices: tuple[ResourceDefinition, ...] = ()


class _ServedResource(Struct):
    name: str


class _ServedList(Struct):
    resources: tuple[_ServedResource, ...] = ()


@dataclass(slots=True)
class Preflight:
    """Inspects again when what it has seen is older than 20 s, beside its callers."""

    cluster: Cluster
    images: Mapping[str, EngineImage]
    _results: dict[Runtime, tuple[float, PreflightResult]] = field(default_factory=dict)
    _running: "dict[Runtime, asyncio.Task[None]]" = field(default_factory=dict)

    async def inspect(self, kind: Runtime) -> PreflightResult:
        """Within 2 s; never raises."""
        now = asyncio.get_running_loop().time()
        last_result = self._results.get(kind)
        if last_result is None or now - last_result[0] > FRESH_SECONDS:
            inspecting = self._running.get(kind)
            if inspecting is None or inspecting.done():
                inspecting = asyncio.create_task(self._inspect(kind), name="inspect_cluster")
                self._running[kind] = inspecting
            await asyncio.wait({inspecting}, timeout=OFFER_SECONDS)
            last_result = self._results.get(kind)
        if last_result is None:
            return PreflightResult(says="the cluster has not answered yet", is_unable=True)
        return last_result[1]

    async def _inspect(self, kind: Runtime) -> None:
        try:
            async with within(INSPECT_SECONDS):
                result = await self._inspect_kind(kind)
        except (KubernetesError, TimeoutError) as error:
            result = PreflightResult(
                says=f"the cluster's API does not answer: {str(error) or 'too slow'}; check its "
                "address in the kubeconfig (GPUSTEWARD_KUBECONFIG)",
                is_unable=True,
            )
        self._results[kind] = (asyncio.get_running_loop().time(), result)

    async def _inspect_kind(self, kind: Runtime) -> PreflightResult:
        version = await self.cluster.client.version()
        unable = list(_too_old(version))
        runtimes: dict[str, str] = {}
        notes: list[str] = []
        if kind is Runtime.OME and not unable:
            if not await self._has_ome():
                unable.append(
                    f"the cluster has no kinds of {OME_VERSION}: install OME, or use mode "
                    "'kubernetes', which needs none"
                )
            else:
                notes += await self._unknown_fields()
        if not unable:
            unable += await self._missing_rights(kind)
        if kind is Runtime.OME and not unable:
            runtimes = await self._serving_runtimes()
        return PreflightResult(
            says="; ".join((*unable, *notes)),
            is_unable=bool(unable),
            version=f"Kubernetes {version}",
            serving_runtimes=runtimes,
            devices=await self._devices(),
        )

    async def _has_ome(self) -> bool:
        try:
            body = await self.cluster.client.call("GET", f"/apis/{OME_VERSION}")
        except KubernetesError as error:
            if error.code == NOT_FOUND:
                return False
            raise
        served = {resource.name for resource in decode(body, _ServedList).resources}
        return {INFERENCE_SERVICES.plural, SERVING_RUNTIMES.plural} <= served

    async def _unknown_fields(self) -> list[str]:
        """Return the fields of ours that the cluster does not know; empty if it hides its
        definitions.
        """
        notes: list[str] = []
        for plural, fields in OUR_FIELDS.items():
            name = f"{plural}.{OME_GROUP}"
            try:
                body = await self.cluster.client.call("GET", DEFINITIONS.path(None, name))
            except KubernetesError as error:
                if error.code in {FORBIDDEN, NOT_FOUND}:
                    continue
                raise
            # Megabytes, in a thread: a heartbeat must not wait for them.
            unknown = await asyncio.to_thread(unknown_fields, body, fields)
            if unknown:
                notes.append(
                    f"{name} of this cluster does not know {', '.join(unknown)}: another version "
                    "of OME than this was written for (v1beta1 of v0.1.5 and later)"
                )
        return notes

    async def _missing_rights(self, kind: Runtime) -> list[str]:
        settings = self.cluster.settings
        required_rights: list[tuple[Right, str | None]] = [
            (right, namespace) for namespace in self.cluster.namespaces for right in RIGHTS[kind]
        ]
        required_rights += [(right, None) for right in CLUSTER_RIGHTS[kind]]
        checks = [
            (verb, right, namespace) for right, namespace in required_rights for verb in right.verbs
        ]
        answers = await asyncio.gather(
            *(
                self.cluster.client.may(
                    verb, right.resource, namespace=namespace, subresource=right.subresource
                )
                for verb, right, namespace in checks
            )
        )
        missing: dict[str, list[str]] = {}
        for (verb, right, namespace), answer in zip(checks, answers, strict=True):
            if not answer.is_allowed:
                where = f" in namespace {namespace}" if namespace is not None else ""
                missing.setdefault(f"{right.place}{where}", []).append(verb)
        if not missing:
            return []
        rights = ", ".join(f"{'/'.join(verbs)} {what}" for what, verbs in missing.items())
        sentence = (
            f"executor {settings.node_id} may not {rights}: bind the roles of the chart "
            "(`gpusteward chart`) to its service account"
        )
        return [sentence]

    async def _devices(self) -> tuple[ResourceDefinition, ...]:
        """Custom ones that the cluster defines; none where their ConfigMaps may not be read."""
        try:
            config_maps, _ = await list_objects(
                self.cluster.client,
                CONFIG_MAPS,
                ConfigMap,
                namespace=DEVICES_NAMESPACE,
                labels=DEVICE_DEFINITIONS,
            )
        except KubernetesError as error:
            if error.code in {FORBIDDEN, NOT_FOUND}:
                return ()
            raise
        return definitions_in(to_builtins(config_map) for config_map in config_maps)

    async def _serving_runtimes(self) -> dict[str, str]:
        body = await self.cluster.client.call("GET", CLUSTER_RUNTIMES.path())
        runtimes: dict[str, str] = {}
        for serving_runtime in decode(body, ObjectList[ServingRuntime]).items:
            runner = None if serving_runtime.spec.disabled else serving_runtime.runner
            engine = None if runner is None else engine_of_runner(runner, self.images)
            if engine is not None:
                runtimes[serving_runtime.metadata.name] = engine
        return runtimes


def _too_old(version: str) -> Iterator[str]:
    if is_too_old(version):
        oldest = ".".join(map(str, OLDEST))
        yield f"expected Kubernetes {oldest} or later, the cluster has {version}"
