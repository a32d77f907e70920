"""A stand-in for OME's controller: Deployments, Services and statuses by the rules of ome_rules.py.

OME itself cannot be run here. What is real: the CRDs, the apiserver that holds objects to them, the
controllers that make pods of Deployments, and the scheduler. As OME does, it puts a finalizer on
every InferenceService: while it is paused, none of them goes.
"""

import asyncio
import gzip
import json
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from aiohttp import ClientError

from shared.testing import eventually
from shared.waiting import cancel_and_wait
from tests.support.kubernetes.api import Api, ApiError, Object, gather_some, path_of, path_to
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.leader_worker_sets import SETS_VERSION, pods_of
from tests.support.kubernetes.ome_rules import (
    API_VERSION,
    SERVICE_LABEL,
    Installed,
    Refused,
    UrlOf,
    cluster_url,
    services_of,
    status_of,
    workload_of,
)

DATA: Final = "GPUSTEWARD_TEST_DATA"
MANAGER: Final = "ome-stand-in"
FINALIZER: Final = "inferenceservice.finalizers"
RETRY_SECONDS: Final = 0.1
UNUSED: Final = frozenset(
    {
        "decoder",
        "decoderConfig",
        "leader",
        "predictor",
        "router",
        "routerConfig",
        "worker",
        "workers",
    }
)
REFUSALS: Final = (400, 403, 422)
_CUSTOM: Final = (
    "InferenceService",
    "ServingRuntime",
    "ClusterServingRuntime",
    "BaseModel",
    "ClusterBaseModel",
    "AcceleratorClass",
)
_WATCHED: Final = (
    *((API_VERSION, kind) for kind in _CUSTOM),
    ("apps/v1", "Deployment"),
    ("v1", "Pod"),
)
_CRD: Final = path_to("apiextensions.k8s.io/v1", "CustomResourceDefinition")
Key = tuple[str | None, str]


def missing_crds() -> str | None:
    """Why OME's kinds cannot be installed here; None if they can."""
    return None if _crds_file().exists() else f"{DATA} leads to no ome/crds.json.gz"


def _crds_file() -> Path:
    return Path(os.environ.get(DATA, "nowhere")) / "ome/crds.json.gz"


async def install_crds(api: Api, *, whole: bool = False) -> None:
    """OME's kinds, as v0.1.5 has them, until the apiserver serves them; once is enough.

    Whole they cost the apiserver 14 s of a processor, four fifths of it for components that we
    never name: unless they are wanted `whole`, those take anything.
    """
    definitions: list[Object] = json.loads(gzip.decompress(_crds_file().read_bytes()))
    if not whole:
        definitions = [_without_unused(each) for each in definitions]
    installed = set(await _installed_kinds(api))
    await gather_some(
        api.apply(each, manager=MANAGER)
        for each in definitions
        if each["metadata"]["name"] not in installed
    )

    async def are_served() -> bool:
        try:
            for kind in _CUSTOM:
                await api.get(path_to(API_VERSION, kind), limit=1)
        except ApiError as error:
            if error.code != 404:
                raise
            return False
        return True

    await eventually(
        are_served, within_seconds=300, every_seconds=0.2, what="OME's kinds to be served"
    )


def _without_unused(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_unused(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        if name in UNUSED and isinstance(value, dict)
        else _without_unused(value)
        for name, value in schema.items()
    }


async def remove_crds(api: Api) -> None:
    """As a cluster without OME is. Objects must be gone, or their finalizers hold everything up."""
    for name in await _installed_kinds(api):
        await api.delete(f"{_CRD}/{name}")

    async def none_is_left() -> bool:
        return not await _installed_kinds(api)

    await eventually(none_is_left, within_seconds=30, what="OME's kinds to be gone")


async def _installed_kinds(api: Api) -> list[str]:
    names: list[str] = [each["metadata"]["name"] for each in await api.metadata(_CRD)]
    return [name for name in names if name.endswith(".ome.io")]


@asynccontextmanager
async def ome_stand_in(
    control_plane: ControlPlane, *, url_of: UrlOf | str = cluster_url
) -> AsyncIterator["OmeStandIn"]:
    """In this event loop. `url_of`: what `status.url` says, a server of the test's own for example;
    by default the address that only the cluster could resolve. The kinds must be installed.
    """
    async with control_plane.api() as api:
        stand_in = OmeStandIn(api, (lambda _: url_of) if isinstance(url_of, str) else url_of)
        task = asyncio.create_task(stand_in.run())
        try:
            yield stand_in
        finally:
            await cancel_and_wait(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error


class OmeStandIn:
    """Acts on whatever changes, one InferenceService at a time."""

    def __init__(self, api: Api, url_of: UrlOf) -> None:
        self.url_of = url_of
        self._api = api
        self._seen: dict[str, dict[Key, Object]] = defaultdict(dict)
        self._made: dict[Key, Object] = {}
        self._due: set[Key] = set()
        self._something_is_due = asyncio.Event()
        self._goes_on = asyncio.Event()
        self._goes_on.set()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Meanwhile it does nothing, as when OME's controller is down."""
        self._goes_on.clear()
        try:
            yield
        finally:
            self._goes_on.set()

    def has_seen(self, thing: Object) -> bool:
        """Whether its view of an object is this one or a later one."""
        seen = self._seen[thing["kind"]].get(_key(thing))
        return seen is not None and _version(seen) >= _version(thing)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for api_version, kind in _WATCHED:
                group.create_task(self._follow(api_version, kind))
            group.create_task(self._act())

    async def _follow(self, api_version: str, kind: str) -> None:
        path = path_to(api_version, kind)
        query = {"labelSelector": SERVICE_LABEL} if not api_version.startswith("ome.io") else {}
        while True:
            # 404: the kind is not installed; the rest: a server that restarts, an expired version.
            try:
                listed = await self._api.get(path, **query)
                self._seen[kind] = {_key(each): each for each in listed["items"]}
                self._all_are_due()
                since = listed["metadata"]["resourceVersion"]
                async with aclosing(self._api.watch(path, since=since, **query)) as events:
                    async for event, thing in events:
                        if event == "ERROR":
                            break
                        self._notice(kind, event, thing)
            except (ApiError, ClientError, TimeoutError, OSError):
                await asyncio.sleep(RETRY_SECONDS)

    def _notice(self, kind: str, event: str, thing: Object) -> None:
        if event == "DELETED":
            self._seen[kind].pop(_key(thing), None)
        else:
            self._seen[kind][_key(thing)] = thing
        if kind == "InferenceService":
            self._is_due(_key(thing))
        elif kind in ("Deployment", "Pod"):
            self._is_due(
                (thing["metadata"]["namespace"], thing["metadata"]["labels"][SERVICE_LABEL])
            )
        else:
            self._all_are_due()

    def _is_due(self, key: Key) -> None:
        self._due.add(key)
        self._something_is_due.set()

    def _all_are_due(self) -> None:
        for key in self._seen["InferenceService"]:
            self._is_due(key)

    async def _act(self) -> None:
        while True:
            await self._something_is_due.wait()
            await self._goes_on.wait()
            self._something_is_due.clear()
            while self._due and self._goes_on.is_set():
                key = self._due.pop()
                try:
                    await self._reconcile(key)
                except (ApiError, ClientError, TimeoutError, OSError):
                    await asyncio.sleep(RETRY_SECONDS)
                    self._is_due(key)

    async def _reconcile(self, key: Key) -> None:
        if (service := self._seen["InferenceService"].get(key)) is None:
            self._made.pop(key, None)
            return
        path = path_of({"apiVersion": API_VERSION, "kind": "InferenceService", **service})
        finalizers: list[str] = service["metadata"].get("finalizers", [])
        if "deletionTimestamp" in service["metadata"]:
            if FINALIZER in finalizers:
                # The collector of garbage would, but hears of new kinds only every 30 s.
                namespace, name = key
                paths = [
                    path_to("apps/v1", "Deployment", namespace, f"{name}-engine"),
                    path_to("v1", "Service", namespace, f"{name}-engine"),
                    path_to("v1", "Service", namespace, name),
                ]
                made = self._made.get(key, {})
                if made.get("kind") == "LeaderWorkerSet":
                    paths += [path_of(made), *map(path_of, pods_of(made))]
                for path_made in paths:
                    await self._api.delete(path_made, propagationPolicy="Background")
                left = [each for each in finalizers if each != FINALIZER]
                await self._api.merge(path, {"metadata": {"finalizers": left}})
            return
        if FINALIZER not in finalizers:
            await self._api.merge(path, {"metadata": {"finalizers": [*finalizers, FINALIZER]}})
        refused = await self._make_workload(key, service)
        await self._tell(path, key, service, refused)

    async def _make_workload(self, key: Key, service: Object) -> Refused | None:
        try:
            workload = workload_of(service, self._installed())
        except Refused as refused:
            return refused
        if workload != self._made.get(key):
            pods = pods_of(workload) if workload["apiVersion"] == SETS_VERSION else ()
            try:
                for each in (workload, *services_of(service, workload), *pods):
                    await self._api.apply(each, manager=MANAGER)
            except ApiError as error:
                if error.code not in REFUSALS:
                    raise
                return Refused("ReconcileError", error.message)
            self._made[key] = workload
        return None

    async def _tell(self, path: str, key: Key, service: Object, refused: Refused | None) -> None:
        namespace, name = key
        made = self._made.get(key)
        if made is None or made["apiVersion"] != SETS_VERSION:
            made = self._seen["Deployment"].get((namespace, f"{name}-engine"))
        status = status_of(
            service,
            made,
            [
                each
                for (place, _), each in self._seen["Pod"].items()
                if place == namespace and each["metadata"]["labels"][SERVICE_LABEL] == name
            ],
            url=self.url_of(service),
            refused=refused,
            now=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        )
        if status != service.get("status"):
            # A merge would leave what is not said any more.
            change = [{"op": "add", "path": "/status", "value": status}]
            self._seen["InferenceService"][key] = await self._api.call(
                "PATCH", f"{path}/status", change, content_type="application/json-patch+json"
            )

    def _installed(self) -> Installed:
        return Installed(
            runtimes={**self._seen["ClusterServingRuntime"], **self._seen["ServingRuntime"]},
            models={
                key: {"kind": kind, **each}
                for kind in ("ClusterBaseModel", "BaseModel")
                for key, each in self._seen[kind].items()
            },
            accelerator_classes={
                name: each for (_, name), each in self._seen["AcceleratorClass"].items()
            },
        )


def _version(thing: Object) -> int:
    return int(thing["metadata"]["resourceVersion"])


def _key(thing: Object) -> Key:
    return thing["metadata"].get("namespace"), thing["metadata"]["name"]
