"""What is said of Postgres and its standbys."""

import pytest

from services.gateway.domain.postgres_health import (
    BEHIND_BYTES,
    PostgresState,
    Standby,
    find_warnings,
)

SYNC = Standby(name="b", state="streaming", sync_state="sync", behind_bytes=0)
ASYNC = Standby(name="c", state="streaming", sync_state="async", behind_bytes=0)
UNSEEN = Standby(name="d")


@pytest.mark.parametrize(
    ("names", "commit", "standbys", "codes"),
    [
        pytest.param("", "on", (), [], id="one server"),
        pytest.param("b", "on", (SYNC,), [], id="synchronous"),
        pytest.param("b", "on", (SYNC, ASYNC), [], id="one of two is synchronous"),
        pytest.param("ANY 1 (b, c)", "remote_apply", (SYNC,), [], id="quorum"),
        pytest.param("", "on", (ASYNC,), ["postgres_asynchronous"], id="asynchronous"),
        pytest.param("b", "local", (SYNC,), ["postgres_asynchronous"], id="commits do not wait"),
        pytest.param("", "on", (UNSEEN,), ["postgres_asynchronous"], id="details not to be seen"),
        pytest.param("b", "on", (UNSEEN,), [], id="perhaps synchronous"),
        pytest.param("b", "on", (), ["postgres_standby_away"], id="the only standby is away"),
        pytest.param("b", "on", (ASYNC,), ["postgres_standby_away"], id="another one is there"),
        pytest.param(
            "b",
            "on",
            (SYNC, Standby(name="c", state="catchup", sync_state="async", behind_bytes=1)),
            ["postgres_standby_behind"],
            id="catches up",
        ),
        pytest.param(
            "b",
            "on",
            (
                Standby(
                    name="b", state="streaming", sync_state="sync", behind_bytes=BEHIND_BYTES + 1
                ),
            ),
            ["postgres_standby_behind"],
            id="far behind",
        ),
    ],
)
def test_warnings_follow_from_the_standbys(
    names: str, commit: str, standbys: tuple[Standby, ...], codes: list[str]
) -> None:
    state = PostgresState(
        takes_writes=True,
        synchronous_names=names,
        synchronous_commit=commit,
        standbys=standbys,
    )

    assert [warning.code.value for warning in find_warnings(state)] == codes


def test_late_standbys_are_named_with_how_far() -> None:
    late = Standby(name="c", state="streaming", sync_state="async", behind_bytes=64 << 20)
    state = PostgresState(takes_writes=True, synchronous_names="b", standbys=(SYNC, late))

    [warning] = find_warnings(state)

    assert "c by 64 MB (streaming)" in warning.message
