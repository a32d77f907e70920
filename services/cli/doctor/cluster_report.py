"""What a Kubernetes cluster says to this login, asked as the cluster's services would ask it."""

import asyncio
import fnmatch
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeVar

from msgspec import Struct

from shared.accelerator_rules.device_config import NAMESPACE
from shared.accelerator_rules.gpu_offers import NodeFacts, read_offer
from shared.accelerator_rules.modes import COUNTED
from shared.accelerator_rules.quantities import whole
from shared.errors import StewardError
from shared.kubernetes.access import ClusterAccess, kubeconfig_files
from shared.kubernetes.client import KubernetesClient, decode
from shared.kubernetes.errors import NOT_FOUND, KubernetesError
from shared.kubernetes.objects.common import ObjectList
from shared.kubernetes.objects.devices import ResourceSlice
from shared.kubernetes.objects.nodes import Node
from shared.kubernetes.ome import OME_VERSION
from shared.kubernetes.requirements import (
    DEVICE_RIGHTS,
    ENGINE_DRA_RIGHTS,
    ENGINE_RIGHTS,
    EXECUTOR_RIGHTS,
    KUEUE_RIGHTS,
    KUEUE_VERSION,
    OME_CLUSTER_RIGHTS,
    OME_DEFINITION_RIGHTS,
    OME_RIGHTS,
    OUR_FIELDS,
    SECRET_RIGHTS,
    WATCHER_DRA_RIGHTS,
    WATCHER_EXEC_RIGHTS,
    WATCHER_PROXY_RIGHTS,
    WATCHER_RIGHTS,
    Right,
    unknown_fields,
)
from shared.waiting import within

T = TypeVar("T")


class ClusterReport(Struct, frozen=True, kw_only=True):
    """`counted` and `devices` are GPUs by extended resource and by DRA driver; None: this login may
    not see them. `divided` is by node why a unit that is counted there is no whole GPU.
    `ome_versions` is empty without OME, and None where that could not be asked. `unknown_fields` is
    None where no definition of a kind may be read. `missing_rights` are `verb/verb place`,
    `unreadable` what this login cannot learn for want of rights, with these in parentheses.
    """

    error: str | None = None
    node_count: int = 0
    counted: Mapping[str, int] | None = None
    devices: Mapping[str, int] | None = None
    divided: Mapping[str, str] = {}
    ome_versions: tuple[str, ...] | None = None
    unknown_fields: Mapping[str, tuple[str, ...]] | None = None
    namespace: str = "default"
    missing_rights: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()


class _Version(Struct, frozen=True):
    version: str


class _Group(Struct, frozen=True):
    versions: tuple[_Version, ...] = ()


def ask_cluster(kubeconfig: str | None, namespace: str, timeout_seconds: float) -> ClusterReport:
    """Never raises; what could not be asked is an `error`."""
    try:
        return asyncio.run(_ask(kubeconfig, namespace, timeout_seconds))
    except TimeoutError:
        return ClusterReport(error=f"no answer within {timeout_seconds:g} s")
    except StewardError as failure:
        return ClusterReport(error=str(failure))


async def _ask(kubeconfig: str | None, namespace: str, timeout_seconds: float) -> ClusterReport:
    access = ClusterAccess(kubeconfig=kubeconfig)
    async with (
        within(timeout_seconds),
        KubernetesClient(access, timeout_seconds=timeout_seconds) as client,
    ):
        await client.version()
        nodes, slices, group, kueue = await asyncio.gather(
            _read(client, "/api/v1/nodes", ObjectList[Node]),
            _read(client, "/apis/resource.k8s.io/v1/resourceslices", ObjectList[ResourceSlice]),
            _read(client, f"/apis/{OME_VERSION.partition('/')[0]}", _Group),
            _read(client, f"/apis/{KUEUE_VERSION.partition('/')[0]}", _Group),
        )
        has_ome = isinstance(group, _Group) and bool(group.versions)
        rights, engine_rights = [*WATCHER_RIGHTS, *EXECUTOR_RIGHTS], [*ENGINE_RIGHTS]
        engine_rights += (*WATCHER_EXEC_RIGHTS, *SECRET_RIGHTS)
        if slices != NOT_FOUND:
            rights += WATCHER_DRA_RIGHTS
            engine_rights += ENGINE_DRA_RIGHTS
        if kubeconfig_files(kubeconfig) is not None:
            rights += WATCHER_PROXY_RIGHTS
        if has_ome:
            rights += (*OME_CLUSTER_RIGHTS, *OME_DEFINITION_RIGHTS)
            engine_rights += OME_RIGHTS
        if isinstance(kueue, _Group):
            engine_rights += KUEUE_RIGHTS
        missing, unreadable = await _missing(
            client,
            [(right, None) for right in rights]
            + [(right, NAMESPACE) for right in DEVICE_RIGHTS]
            + [(right, namespace) for right in engine_rights],
        )
        return ClusterReport(
            node_count=len(nodes.items) if isinstance(nodes, ObjectList) else 0,
            counted=_count_resources(nodes.items) if isinstance(nodes, ObjectList) else None,
            divided=_sharing_notes(nodes.items) if isinstance(nodes, ObjectList) else {},
            devices=_devices(slices),
            ome_versions=_versions(group),
            unknown_fields=await _unknown_fields(client) if has_ome else None,
            namespace=namespace,
            missing_rights=missing,
            unreadable=unreadable,
        )


async def _read(client: KubernetesClient, path: str, type_: type[T]) -> T | int:
    """Return the objects at a path, or the code of the refusal."""
    try:
        return decode(await client.call("GET", path), type_)
    except KubernetesError as refusal:
        if refusal.code == 0:
            raise
        return refusal.code


def _count_resources(nodes: Iterable[Node]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for node in nodes:
        for resource, amount in node.status.allocatable.items():
            if any(fnmatch.fnmatchcase(resource, pattern) for pattern in COUNTED):
                counts[resource] += int(amount) if amount.isdigit() else 0
    return {resource: count for resource, count in sorted(counts.items()) if count}


def _sharing_notes(nodes: Iterable[Node]) -> dict[str, str]:
    notes_by_node: dict[str, str] = {}
    for node in nodes:
        facts = NodeFacts(
            labels=node.metadata.labels,
            annotations=node.metadata.annotations,
            capacity={name: whole(quantity) for name, quantity in node.status.capacity.items()},
            allocatable={
                name: whole(quantity) for name, quantity in node.status.allocatable.items()
            },
        )
        notes = (
            read_offer(resource, facts).note
            for resource in sorted(facts.allocatable)
            if any(fnmatch.fnmatchcase(resource, pattern) for pattern in COUNTED)
        )
        if note := next(filter(None, notes), ""):
            notes_by_node[node.metadata.name] = note
    return dict(sorted(notes_by_node.items()))


def _devices(slices: ObjectList[ResourceSlice] | int) -> dict[str, int] | None:
    """A cluster that does not know ResourceSlices has none."""
    if isinstance(slices, int):
        return {} if slices == NOT_FOUND else None
    counts: Counter[str] = Counter()
    for resource_slice in slices.items:
        counts[resource_slice.spec.driver] += len(resource_slice.spec.devices)
    return dict(sorted(counts.items()))


def _versions(group: _Group | int) -> tuple[str, ...] | None:
    if isinstance(group, int):
        return () if group == NOT_FOUND else None
    return tuple(version.version for version in group.versions)


async def _unknown_fields(client: KubernetesClient) -> dict[str, tuple[str, ...]] | None:
    """Return the unknown fields by kind, as far as this login may read the definitions."""
    fields_by_kind: dict[str, tuple[str, ...]] | None = None
    for plural, fields in OUR_FIELDS.items():
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.ome.io"
        try:
            definition = await client.call("GET", path)
        except KubernetesError as refusal:
            if refusal.code == 0:
                raise
            continue
        fields_by_kind = fields_by_kind or {}
        if unknown := unknown_fields(definition, fields):
            fields_by_kind[plural] = unknown
    return fields_by_kind


async def _missing(
    client: KubernetesClient, rights: Iterable[tuple[Right, str | None]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Rights, and what others would tell."""
    checks = [(right, verb, namespace) for right, namespace in rights for verb in right.verbs]
    answers = await asyncio.gather(
        *(
            client.may(
                verb,
                right.resource,
                namespace=namespace,
                subresource=right.subresource,
                name=right.name,
            )
            for right, verb, namespace in checks
        )
    )
    missing: dict[tuple[str, str], list[str]] = {}
    for (right, verb, namespace), answer in zip(checks, answers, strict=True):
        if not answer.is_allowed:
            where = f" in {namespace}" if namespace is not None else ""
            verbs = missing.setdefault((right.tells, f"{right.place}{where}"), [])
            if verb not in verbs:
                verbs.append(verb)
    missing_texts = {key: f"{'/'.join(verbs)} {key[1]}" for key, verbs in missing.items()}
    return (
        tuple(right for (tells, _), right in missing_texts.items() if not tells),
        tuple(f"{tells} ({right})" for (tells, _), right in missing_texts.items() if tells),
    )
