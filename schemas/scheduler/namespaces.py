"""Namespaces in the ledger: what each may hold, and what it holds."""

from enum import StrEnum
from typing import Annotated, ClassVar, Final

from msgspec import Meta, Struct

from schemas.base import Command, Count, Event, Namespace, Query, View

GpuAmount = Annotated[float, Meta(ge=0, le=1_000_000)]
Weight = Annotated[int, Meta(ge=1, le=1_000)]
ANOTHER_NAMESPACE: Final = "another namespace"  # who holds what is not the asker's to see


class PreemptionCause(StrEnum):
    """Why a reservation has to give way to another one."""

    PRIORITY = "priority"  # the other's is higher
    GUARANTEE = "guarantee"  # what its namespace borrowed is taken back


PREEMPTION_CAUSES: Final = {
    PreemptionCause.PRIORITY: "which has a higher priority",
    PreemptionCause.GUARANTEE: "whose namespace takes back what is guaranteed to it",
}


class SetNamespace(Command, frozen=True, kw_only=True, tag="scheduler.set_namespace"):
    """Set what a namespace may hold at once; None takes the limit away.

    Amounts count GPUs, shares by their size. What is held above a new limit stays held. Up to
    `guaranteed_gpus` nobody keeps it from; what it holds above that is borrowed. `weight`: how
    many times as much as one of weight 1 it is due where both wait.
    """

    namespace: Namespace
    gpu_limit: GpuAmount | None = None
    guaranteed_gpus: GpuAmount = 0.0
    weight: Weight = 1


class NamespaceSet(Event, frozen=True, kw_only=True, tag="scheduler.namespace_set"):
    """An administrator has set what a namespace may hold."""

    key_field: ClassVar[str | None] = "namespace"
    namespace: Namespace
    gpu_limit: GpuAmount | None = None
    guaranteed_gpus: GpuAmount = 0.0
    weight: Weight = 1


class ListNamespaces(Query, frozen=True, kw_only=True, tag="scheduler.list_namespaces"):
    """What do namespaces hold, and what may they? Answered by `NamespaceList`."""


class NamespaceUse(Struct, frozen=True, kw_only=True):
    """A namespace with rules, or that holds GPUs or waits for some. `gpus` counts shares by size.

    Of those that wait, the one with the smallest `used_share` is served first: the part of all that
    it holds, and of what it held of late, over its weight. None where nobody waits beside it.
    """

    namespace: Namespace
    gpus: GpuAmount
    gpu_limit: GpuAmount | None = None
    queued: Count = 0
    guaranteed_gpus: GpuAmount = 0.0
    weight: Weight = 1
    used_share: float | None = None


class NamespaceList(View, frozen=True, kw_only=True, tag="scheduler.namespaces"):
    """By name."""

    namespaces: tuple[NamespaceUse, ...]
