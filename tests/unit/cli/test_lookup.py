"""Which thing a shortened id names."""

from uuid import UUID

import pytest

from schemas.errors import ErrorCode
from schemas.orchestrator.experiments import ExperimentState
from schemas.scheduler.reservations import ReservationState, experiment_holder
from services.cli.display.tables import short
from services.cli.failures import CommandFailed
from services.cli.lookup import Candidate, NamedView, Sort, choose, to_named
from tests.support.worlds.gateway_views import make_experiment, make_reservation, make_task

TASK = Candidate(Sort.TASK, UUID("01920000-0000-7000-8000-aaaaaaaaaaaa"))
EXPERIMENT = Candidate(Sort.EXPERIMENT, UUID("01920000-0000-7000-8000-bbbbbbbbbbbb"))
RESERVATION = Candidate(Sort.RESERVATION, UUID("01930000-0000-7000-8000-bbbbbbbbbbcc"))
KNOWN = [TASK, EXPERIMENT, RESERVATION]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("0193", RESERVATION, id="a unique beginning"),
        pytest.param("aaaa", TASK, id="a unique end"),
        pytest.param("BBBBBBBBBBBB", EXPERIMENT, id="in capitals"),
        pytest.param(short(TASK.identifier), TASK, id="as tables print it"),
    ],
)
def test_unique_short_id_is_accepted(text: str, want: Candidate) -> None:
    assert choose(text, KNOWN) == want


def test_ambiguous_id_is_refused_with_candidates() -> None:
    with pytest.raises(
        CommandFailed, match=r"names 2 things.*task a{12}, experiment b{12}"
    ) as seen:
        choose("0192", KNOWN)

    assert seen.value.code is ErrorCode.BAD_REQUEST


@pytest.mark.parametrize("text", ["ffff", ""])
def test_an_unknown_id_is_not_found(text: str) -> None:
    with pytest.raises(CommandFailed) as seen:
        choose(text, KNOWN)

    assert seen.value.code is ErrorCode.NOT_FOUND


TUNING = make_task(task_name="tuning")
FIRST, SECOND = (
    make_experiment(n, task_id=TUNING.task_id, task_name="tuning", state=state)
    for n, state in ((1, ExperimentState.SUCCEEDED), (2, ExperimentState.RUNNING))
)
OF_SECOND = make_reservation(holder=experiment_holder(SECOND.experiment_id, "tuning", 2))
ENDED = make_reservation(holder="exec/ada", state=ReservationState.RELEASED)
HELD = make_reservation(holder="exec/ada", state=ReservationState.ACTIVE)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("tuning", TUNING.task_id, id="a task"),
        pytest.param("tuning#1", FIRST.experiment_id, id="a task's first experiment"),
        pytest.param("tuning#2", SECOND.experiment_id, id="not the experiment's reservation"),
        pytest.param("exec/ada", HELD.reservation_id, id="of two by one holder the one that lasts"),
    ],
)
def test_a_name_works_where_an_id_does(text: str, want: UUID) -> None:
    views: list[NamedView] = [TUNING, FIRST, SECOND, OF_SECOND, ENDED, HELD]
    known = [to_named(view) for view in views]

    assert choose(text, known).identifier == want


def test_part_is_found_where_whole_is_not_asked() -> None:
    experiments, reservations = map(to_named, [FIRST, SECOND]), map(to_named, [OF_SECOND, HELD])

    assert choose("tuning", list(experiments)).identifier == SECOND.experiment_id  # it goes on
    assert choose("tuning#2", list(reservations)).identifier == OF_SECOND.reservation_id


def test_ambiguous_name_is_refused_with_states() -> None:
    also = make_experiment(3, task_name="tuning", state=ExperimentState.WAITING)

    with pytest.raises(CommandFailed) as seen:
        choose("tuning", list(map(to_named, [FIRST, SECOND, also])))

    assert str(seen.value) == (
        f"'tuning' names 2 things: experiment {short(SECOND.experiment_id)} (tuning#2, running),"
        f" experiment {short(also.experiment_id)} (tuning#3, waiting)"
    )


@pytest.mark.parametrize(
    ("known", "says"),
    [
        (
            [to_named(TUNING), to_named(FIRST), to_named(SECOND)],
            "task tuning has experiments 1 to 2, found",
        ),
        ([to_named(FIRST), to_named(SECOND)], "task tuning has experiments 1 to 2, found"),
        ([to_named(TUNING), to_named(SECOND)], "task tuning has experiment 2 alone, found"),
        ([to_named(TUNING)], "task tuning has no experiment yet, found 'tuning#9'"),
        ([], "no task or experiment or reservation has a name"),
    ],
)
def test_unknown_experiment_lists_those_of_task(known: list[Candidate], says: str) -> None:
    with pytest.raises(CommandFailed, match=says) as seen:
        choose("tuning#9", known)

    assert seen.value.code is ErrorCode.NOT_FOUND
