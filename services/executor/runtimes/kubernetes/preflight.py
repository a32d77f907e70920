"""What a cluster lacks for engines of ours, a sentence and a next step for each thing."""

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec import Struct

from schemas.executor import Runtime
from services.executor.engines.image import EngineImage
from services.executor.runtimes.kubernetes.cluster import Cluster
from services.executor.runtimes.kubernetes.kinds import (
    BASE_MODELS,
    CLAIM_TEMPLATES,
    CLUSTER_MODELS,
    CLUSTER_RUNTIMES,
    DEFINITIONS,
    DEPLOYMENTS,
    INFERENCE_SERVICES,
    OME_GROUP,
    OME_VERSION,
    PODS,
    SERVICES,
    SERVING_RUNTIMES,
    ServingRuntimeList,
)
from services.executor.runtimes.kubernetes.references import engine_of_runner
from shared.kubernetes.client import decoded
from shared.kubernetes.errors import FORBIDDEN, NOT_FOUND, KubernetesError
from shared.kubernetes.names import Resource
from shared.waiting import within

OFFER_SECONDS: Final = 1.8
FRESH_SECONDS: Final = 20.0
LOOK_SECONDS: Final = 15.0
OLDEST: Final = (1, 25)
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)")
_EVERY: Final = ("get", "list", "create", "patch", "delete")

# Verbs on kinds in a namespace, of each runtime; PODS for both, and `log` below them.
RIGHTS: Final[Mapping[Runtime, tuple[tuple[Resource, tuple[str, ...]], ...]]] = {
    Runtime.OME: (
        (INFERENCE_SERVICES, _EVERY),
        (SERVING_RUNTIMES, _EVERY),
        (BASE_MODELS, ("get",)),
        (CLAIM_TEMPLATES, _EVERY),
        (PODS, ("list", "delete")),
    ),
    Runtime.KUBERNETES: (
        (DEPLOYMENTS, _EVERY),
        (CLAIM_TEMPLATES, _EVERY),
        (SERVICES, _EVERY),
        (PODS, ("list", "delete")),
    ),
}
CLUSTER_RIGHTS: Final[Mapping[Runtime, tuple[tuple[Resource, tuple[str, ...]], ...]]] = {
    Runtime.OME: ((CLUSTER_MODELS, ("get",)), (CLUSTER_RUNTIMES, ("get", "list"))),
    Runtime.KUBERNETES: (),
}
# What we set, by the kinds of OME: a cluster's version may not know all of it.
OUR_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "inferenceservices": (
        "spec.engine.affinity",
        "spec.engine.annotations",
        "spec.engine.labels",
        "spec.engine.maxReplicas",
        "spec.engine.minReplicas",
        "spec.engine.tolerations",
        "spec.model.apiGroup",
        "spec.model.kind",
        "spec.model.name",
        "spec.runtime.apiGroup",
        "spec.runtime.kind",
        "spec.runtime.name",
        "status.conditions",
        "status.url",
    ),
    "servingruntimes": (
        "spec.engineConfig.annotations",
        "spec.engineConfig.automountServiceAccountToken",
        "spec.engineConfig.enableServiceLinks",
        "spec.engineConfig.labels",
        "spec.engineConfig.resourceClaims",
        "spec.engineConfig.runner.args",
        "spec.engineConfig.runner.command",
        "spec.engineConfig.runner.env",
        "spec.engineConfig.runner.image",
        "spec.engineConfig.runner.readinessProbe",
        "spec.engineConfig.runner.resources",
        "spec.engineConfig.runner.securityContext",
        "spec.engineConfig.runner.volumeMounts",
        "spec.engineConfig.securityContext",
        "spec.engineConfig.terminationGracePeriodSeconds",
        "spec.engineConfig.volumes",
        "spec.supportedModelFormats.modelFormat",
        "spec.supportedModelFormats.modelFramework",
    ),
}


class Seen(Struct, frozen=True, kw_only=True):
    """`says` is what is missing, in sentences; `is_unable`: without it no engine can run."""

    says: str = ""
    is_unable: bool = False
    version: str | None = None
    serving_runtimes: dict[str, str] = {}


class _Served(Struct):
    name: str


class _ServedList(Struct):
    resources: tuple[_Served, ...] = ()


@dataclass(slots=True)
class Preflight:
    """Looks again when what it has seen is older than 20 s, beside whoever asks."""

    cluster: Cluster
    images: Mapping[str, EngineImage]
    _seen: dict[Runtime, tuple[float, Seen]] = field(default_factory=dict)
    _looking: "dict[Runtime, asyncio.Task[None]]" = field(default_factory=dict)

    async def look(self, kind: Runtime) -> Seen:
        """Within 2 s; never raises."""
        now = asyncio.get_running_loop().time()
        known = self._seen.get(kind)
        if known is None or now - known[0] > FRESH_SECONDS:
            looking = self._looking.get(kind)
            if looking is None or looking.done():
                looking = asyncio.create_task(self._look(kind), name="look_at_cluster")
                self._looking[kind] = looking
            await asyncio.wait({looking}, timeout=OFFER_SECONDS)
            known = self._seen.get(kind)
        if known is None:
            return Seen(says="the cluster has not answered yet", is_unable=True)
        return known[1]

    async def _look(self, kind: Runtime) -> None:
        try:
            async with within(LOOK_SECONDS):
                seen = await self._look_at(kind)
        except (KubernetesError, TimeoutError) as error:
            seen = Seen(
                says=f"the cluster's API does not answer: {str(error) or 'too slow'}; check its "
                "address in the kubeconfig (GPUSTEWARD_KUBECONFIG)",
                is_unable=True,
            )
        self._seen[kind] = (asyncio.get_running_loop().time(), seen)

    async def _look_at(self, kind: Runtime) -> Seen:
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
        return Seen(
            says="; ".join((*unable, *notes)),
            is_unable=bool(unable),
            version=f"Kubernetes {version}",
            serving_runtimes=runtimes,
        )

    async def _has_ome(self) -> bool:
        try:
            body = await self.cluster.client.call("GET", f"/apis/{OME_VERSION}")
        except KubernetesError as error:
            if error.code == NOT_FOUND:
                return False
            raise
        served = {each.name for each in decoded(body, _ServedList).resources}
        return {INFERENCE_SERVICES.plural, SERVING_RUNTIMES.plural} <= served

    async def _unknown_fields(self) -> list[str]:
        """Of ours; none where the definitions may not be read."""
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
        wanted: list[tuple[str, Resource, str | None, str]] = [
            (verb, resource, namespace, "")
            for namespace in self.cluster.namespaces
            for resource, verbs in RIGHTS[kind]
            for verb in verbs
        ]
        wanted += [("get", PODS, namespace, "log") for namespace in self.cluster.namespaces]
        wanted += [
            (verb, resource, None, "") for resource, verbs in CLUSTER_RIGHTS[kind] for verb in verbs
        ]
        answers = await asyncio.gather(
            *(
                self.cluster.client.may(verb, resource, namespace=namespace, subresource=sub)
                for verb, resource, namespace, sub in wanted
            )
        )
        missing: dict[str, list[str]] = {}
        for (verb, resource, namespace, sub), answer in zip(wanted, answers, strict=True):
            if not answer.is_allowed:
                what = f"{resource.plural}/{sub}" if sub else resource.plural
                where = f" in namespace {namespace}" if namespace is not None else ""
                missing.setdefault(f"{what}{where}", []).append(verb)
        if not missing:
            return []
        rights = ", ".join(f"{'/'.join(verbs)} {what}" for what, verbs in missing.items())
        sentence = (
            f"executor {settings.node_id} may not {rights}: bind the roles of compose/kubernetes "
            "to its service account"
        )
        return [sentence]

    async def _serving_runtimes(self) -> dict[str, str]:
        body = await self.cluster.client.call("GET", CLUSTER_RUNTIMES.path())
        found: dict[str, str] = {}
        for each in decoded(body, ServingRuntimeList).items:
            runner = None if each.spec.disabled else each.runner
            engine = None if runner is None else engine_of_runner(runner, self.images)
            if engine is not None:
                found[each.metadata.name] = engine
        return found


def _too_old(version: str) -> Iterator[str]:
    found = _VERSION.match(version)
    if found is not None and (int(found[1]), int(found[2])) < OLDEST:
        yield f"expected Kubernetes 1.25 or later, the cluster has {version}"


def unknown_fields(definition: bytes, fields: Iterable[str]) -> tuple[str, ...]:
    """Those of `fields` that the served version of a CustomResourceDefinition does not have."""
    spec = msgspec.json.decode(definition)["spec"]
    wanted = OME_VERSION.rpartition("/")[2]
    schema = next(
        (
            (each.get("schema") or {}).get("openAPIV3Schema") or {}
            for each in spec["versions"]
            if each["name"] == wanted and each.get("served")
        ),
        {},
    )
    return tuple(each for each in fields if not _knows(schema, each.split(".")))


def _knows(schema: Mapping[str, Any], path: list[str]) -> bool:
    for step in path:
        if schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema:
            return True
        properties = (schema.get("items") or schema).get("properties") or {}
        if step not in properties:
            return False
        schema = properties[step]
    return True
