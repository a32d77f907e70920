"""What an event is about, and whom that concerns."""

from typing import Any
from uuid import UUID

import pytest

from services.gateway.domain.event_filter import EventFilter, Subjects, subjects_of

ID = "01a201a9-918b-7630-b786-7fe2c814f0b7"


@pytest.mark.parametrize(
    ("body", "about"),
    [
        ({"task_id": ID}, Subjects(task_id=ID)),
        ({"holder": f"experiment/{ID}"}, Subjects(experiment_id=ID)),
        ({"holder": f"experiment/{ID}", "experiment_id": "e"}, Subjects(experiment_id="e")),
        ({"holder": f"experiment/{ID}/tuning#3"}, Subjects(experiment_id=ID)),
        ({"holder": "exec/ada", "reservation_id": ID}, Subjects(reservation_id=ID)),
        ({"holder": "experiment/1", "task_id": 3}, Subjects()),
        ({"holder": None, "task_id": "a\0b"}, Subjects(task_id="ab")),
    ],
)
def test_an_event_is_about_the_ids_that_it_names(body: dict[str, Any], about: Subjects) -> None:
    assert subjects_of(body) == about


def test_event_matches_every_filter_field() -> None:
    about = Subjects(task_id=ID, experiment_id="e", reservation_id="r")
    other = str(UUID(int=1))

    assert EventFilter().matches("any.thing", Subjects())
    assert EventFilter(types=("a.b",), task_id=ID).matches("a.b", about)
    assert EventFilter(experiment_id="e", reservation_id="r").matches("a.b", about)
    assert not EventFilter(types=("a.b",)).matches("a.c", about)
    assert not EventFilter(task_id=other).matches("a.b", about)
    assert not EventFilter(experiment_id=other).matches("a.b", about)
    assert not EventFilter(reservation_id=other).matches("a.b", about)


@pytest.mark.parametrize(
    ("names_of", "sees"), [((), False), (("red",), False), (("red", "blue"), True), (None, True)]
)
def test_reservation_events_need_holder_visibility(
    names_of: tuple[str, ...] | None, sees: bool
) -> None:
    wanted = EventFilter(readable=("red",), names_of=names_of)
    theirs = Subjects(reservation_id=ID, namespace="blue")

    assert wanted.matches("scheduler.reservation_granted", theirs) is sees
    assert not wanted.matches("orchestrator.task_started", theirs)
