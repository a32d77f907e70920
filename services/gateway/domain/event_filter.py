"""What an event is about, and which events a client wants."""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from schemas.scheduler.reservations import experiment_of_holder

RESERVATION_EVENTS: Final = "scheduler.reservation_"


class Subjects(Struct, frozen=True, kw_only=True):
    """The ids that an event names; events of reservations name their experiment as the holder."""

    task_id: str | None = None
    experiment_id: str | None = None
    reservation_id: str | None = None
    namespace: str | None = None

    @property
    def is_of_the_fleet(self) -> bool:
        """About nothing that belongs to a namespace."""
        return not (self.task_id or self.experiment_id or self.reservation_id or self.namespace)


def subjects_of(body: Mapping[str, Any]) -> Subjects:
    """Read from an event of any type, also from one that this release does not know."""
    return Subjects(
        task_id=_text(body.get("task_id")),
        experiment_id=_text(body.get("experiment_id")) or _holding_experiment(body.get("holder")),
        reservation_id=_text(body.get("reservation_id")),
        namespace=_text(body.get("namespace")),
    )


class EventFilter(Subjects, frozen=True, kw_only=True):
    """Which events a client wants: those that fit every field given.

    `readable` are the namespaces whose events it may see beside the fleet's, and `names_of` those
    whose reservations'; None: every one.
    """

    types: tuple[str, ...] = ()
    readable: tuple[str, ...] | None = None
    names_of: tuple[str, ...] | None = ()

    def matches(self, type_: str, about: Subjects) -> bool:
        return (
            (not self.types or type_ in self.types)
            and self.task_id in {None, about.task_id}
            and self.experiment_id in {None, about.experiment_id}
            and self.reservation_id in {None, about.reservation_id}
            and self.may_see(type_, about)
        )

    def may_see(self, type_: str, about: Subjects) -> bool:
        """Return whether an event of this type about these subjects may be shown to the client."""
        if self.readable is None or about.is_of_the_fleet or about.namespace in self.readable:
            return True
        is_of_holder = type_.startswith(RESERVATION_EVENTS)
        return is_of_holder and (self.names_of is None or about.namespace in self.names_of)


def _text(value: object) -> str | None:
    return value.replace("\0", "") if isinstance(value, str) else None


def _holding_experiment(holder: object) -> str | None:
    if not isinstance(holder, str):
        return None
    try:
        return str(UUID(experiment_of_holder(holder)))
    except ValueError:
        return None
