"""Namespaces in the ledger: what each may hold, and what it holds."""

from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from schemas.base import Command, Count, Event, Namespace, Query, View

GpuAmount = Annotated[float, Meta(ge=0, le=1_000_000)]


class SetNamespace(Command, frozen=True, kw_only=True, tag="scheduler.set_namespace"):
    """Set what a namespace may hold at once; None takes the limit away.

    `gpu_limit` counts GPUs, shares by their size. What is held above a new limit stays held.
    """

    namespace: Namespace
    gpu_limit: GpuAmount | None = None


class NamespaceSet(Event, frozen=True, kw_only=True, tag="scheduler.namespace_set"):
    """An administrator has set what a namespace may hold."""

    key_field: ClassVar[str | None] = "namespace"
    namespace: Namespace
    gpu_limit: GpuAmount | None = None


class ListNamespaces(Query, frozen=True, kw_only=True, tag="scheduler.list_namespaces"):
    """What do namespaces hold, and what may they? Answered by `NamespaceList`."""


class NamespaceUse(Struct, frozen=True, kw_only=True):
    """A namespace that has a limit, holds GPUs or waits for some. `gpus` counts shares by size."""

    namespace: Namespace
    gpus: GpuAmount
    gpu_limit: GpuAmount | None = None
    queued: Count = 0


class NamespaceList(View, frozen=True, kw_only=True, tag="scheduler.namespaces"):
    """By name."""

    namespaces: tuple[NamespaceUse, ...]
