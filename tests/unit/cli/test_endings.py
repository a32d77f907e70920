"""What a command would end, in a sentence."""

import click
import pytest

from schemas.orchestrator.experiments import ExperimentState
from schemas.scheduler.reservations import ReservationState
from services.cli import endings
from services.cli.endings import (
    confirm_ending,
    experiments_ending,
    is_own,
    reservations_ending,
)
from tests.support.worlds.gateway_views import make_experiment, make_grant, make_reservation


def test_ending_reservations_are_counted() -> None:
    held = [
        make_reservation(holder=f"exec/{name}", devices=(make_grant(2 * n), make_grant(2 * n + 1)))
        for n, name in enumerate(("alice", "bob", "carol", "dan", "eve"))
    ]
    ended = make_reservation(state=ReservationState.RELEASED)

    assert reservations_ending([*held, ended]) == (
        "5 reservations on 10 GPUs: exec/alice (2 GPUs), exec/bob (2 GPUs), exec/carol (2 GPUs)"
        " and 2 more"
    )


def test_shares_of_one_gpu_are_counted_as_one_gpu() -> None:
    held = [make_reservation(holder=name) for name in ("ann", "bob")]

    assert reservations_ending(held) == "2 reservations on 1 GPU: ann (1 GPU), bob (1 GPU)"


@pytest.mark.parametrize(
    "state", sorted(set(ReservationState) - {ReservationState.GRANTED, ReservationState.ACTIVE})
)
def test_unheld_reservation_ends_nobodys_work(state: ReservationState) -> None:
    assert reservations_ending([make_reservation(state=state)]) == ""


def test_only_experiments_that_run_would_end() -> None:
    states = [ExperimentState.SUCCEEDED, ExperimentState.RUNNING, ExperimentState.STARTING]
    views = [make_experiment(n, state=state) for n, state in enumerate(states, 1)]

    assert experiments_ending(views[::-1]) == "2 running experiments: #2, #3"
    assert experiments_ending([make_experiment(1, state=ExperimentState.WAITING)]) == ""


@pytest.mark.parametrize(
    ("holder", "own"),
    [
        ("exec/alice", True),
        ("Alice: detector v3", True),
        ("reserve/malice", False),
        ("", False),
        ("alice#3", False),
    ],
)
def test_reservation_is_own_by_its_holder(
    monkeypatch: pytest.MonkeyPatch, holder: str, own: bool
) -> None:
    monkeypatch.setattr(endings, "user_name", lambda: "alice")

    assert is_own(make_reservation(holder=holder), "") is own
    assert is_own(make_reservation(holder=holder), "ada") is own


@pytest.mark.parametrize(
    ("holder", "requester", "own"),
    [
        ("exec/alice", "ada", True),
        ("exec/ada", "bob", False),
        ("ada: training", "bob", False),
        ("tuning#3", "ada", False),
    ],
)
def test_who_requested_it_goes_before_the_holder(holder: str, requester: str, own: bool) -> None:
    assert is_own(make_reservation(holder=holder, requester=requester), "ada") is own


def test_ending_work_is_shown_with_its_person() -> None:
    experiment = make_reservation(holder="tuning#3", requester="ada")
    command = make_reservation(holder="exec/ada", requester="ada")

    assert reservations_ending([experiment]) == "1 reservation on 1 GPU: tuning#3 of ada"
    assert reservations_ending([command]) == "1 reservation on 1 GPU: exec/ada"


def test_ending_work_without_terminal_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)

    confirm_ending("Draining alpha", "", yes=False)
    confirm_ending("Draining alpha", "1 reservation: ann", yes=True)
    with pytest.raises(click.UsageError, match=r"Draining alpha ends 1 reservation: ann.*--yes"):
        confirm_ending("Draining alpha", "1 reservation: ann", yes=False)
