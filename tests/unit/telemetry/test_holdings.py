"""What is held, whatever order it is heard in."""

from services.telemetry.domain.holdings import MAX_ENDED, Holding, Holdings
from shared.ids import new_id


def test_a_grant_holds_its_devices_until_it_ends() -> None:
    holdings, first, second = Holdings(), new_id(), new_id()
    holdings.grant(first, ["a", "b"])
    holdings.grant(second, ["c"])
    assert holdings.devices == {"a", "b", "c"}

    holdings.end(first)
    assert holdings.devices == {"c"}


def test_a_grant_heard_after_its_end_holds_nothing() -> None:
    holdings, reservation_id = Holdings(), new_id()
    holdings.end(reservation_id)
    holdings.grant(reservation_id, ["a"])

    assert holdings.devices == frozenset()


def test_the_same_grant_or_end_twice_changes_nothing() -> None:
    holdings, reservation_id = Holdings(), new_id()
    holdings.grant(reservation_id, ["a"])
    holdings.grant(reservation_id, ["a"])
    assert holdings.devices == {"a"}

    holdings.end(reservation_id)
    holdings.end(reservation_id)
    assert holdings.devices == frozenset()


def test_owner_corrects_missed_not_newer_changes() -> None:
    holdings, missed_end, missed_grant, kept, newer = Holdings(), *(new_id() for _ in range(4))
    holdings.grant(missed_end, ["a"])
    holdings.grant(kept, ["b"])
    queried = holdings.reservations
    holdings.grant(newer, ["c"])

    holdings.reconcile(
        {
            kept: Holding(devices=frozenset({"b"})),
            missed_grant: Holding(devices=frozenset({"d"})),
        },
        queried,
    )

    assert holdings.devices == {"b", "c", "d"}


def test_end_told_during_the_query_stands() -> None:
    holdings, reservation_id = Holdings(), new_id()
    holdings.grant(reservation_id, ["a"])
    queried = holdings.reservations
    holdings.end(reservation_id)

    holdings.reconcile({reservation_id: Holding(devices=frozenset({"a"}))}, queried)

    assert holdings.devices == frozenset()


def test_ends_are_not_remembered_for_ever() -> None:
    holdings, oldest = Holdings(), new_id()
    holdings.end(oldest)
    for _ in range(MAX_ENDED):
        holdings.end(new_id())

    holdings.grant(oldest, ["a"])

    assert holdings.devices == {"a"}
