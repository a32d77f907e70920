"""When a stream has lost what it had, and how many replicas it is to have."""

from datetime import UTC, datetime

import pytest

from shared.messaging.stream_names import EVENTS, SAMPLES
from shared.messaging.stream_state import (
    Peer,
    StoredRange,
    StreamCluster,
    StreamReplicas,
    StreamView,
    has_lost_all,
    lacking_replicas,
    with_mark,
)
from shared.settings import CommonSettings, SettingsError, load_settings

NEVER = "0001-01-01T00:00:00Z"
CREATED = "2026-01-01T00:00:00.123456789Z"


def stored(first: int, last: int, first_ts: str = "2026-01-01T00:00:01Z") -> StoredRange:
    return StoredRange(max(0, last - first + 1), first, last, first_ts if last >= first else NEVER)


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        pytest.param(stored(1, 9), stored(1, 12), False, id="more came"),
        pytest.param(stored(1, 9), stored(1, 7), False, id="a new leader is a little behind"),
        pytest.param(stored(1, 9), stored(5, 12), False, id="some expired"),
        pytest.param(stored(1, 9), stored(10, 9), False, id="all expired"),
        pytest.param(stored(10, 9), stored(10, 11), False, id="first after all expired"),
        pytest.param(stored(0, 0), stored(1, 3), False, id="first ever"),
        pytest.param(stored(0, 0), stored(0, 0), False, id="never any"),
        pytest.param(stored(1, 9), stored(0, 0), True, id="back and empty"),
        pytest.param(stored(10, 9), stored(0, 0), True, id="empty before and after"),
        pytest.param(stored(5, 9), stored(1, 2), True, id="filled again"),
        pytest.param(stored(1, 9), stored(1, 2, CREATED), True, id="filled again from 1"),
        pytest.param(stored(1, 9), stored(1, 20, CREATED), True, id="filled beyond"),
    ],
)
def test_loss_is_told_from_expiry(before: StoredRange, after: StoredRange, want: bool) -> None:
    assert has_lost_all(before, after) is want


@pytest.mark.parametrize(
    ("replicas", "is_clustered", "events", "samples"),
    [
        (StreamReplicas(), False, 1, 1),
        (StreamReplicas(), True, 3, 3),
        (StreamReplicas(samples="1"), True, 3, 1),
        (StreamReplicas(events="5", samples="auto"), True, 5, 3),
        (StreamReplicas(events="3"), False, 3, 1),
    ],
)
def test_replicas_follow_settings_and_cluster(
    replicas: StreamReplicas, is_clustered: bool, events: int, samples: int
) -> None:
    assert replicas.of(EVENTS, is_clustered=is_clustered) == events
    assert replicas.of(SAMPLES, is_clustered=is_clustered) == samples


@pytest.mark.parametrize("value", ["0", "6", "three", "AUTO"])
def test_other_replicas_are_refused(value: str) -> None:
    with pytest.raises(SettingsError, match="GPUSTEWARD_STREAM_REPLICAS"):
        load_settings(CommonSettings, "results", {"GPUSTEWARD_STREAM_REPLICAS": value})


def view(config: dict[str, object], cluster: StreamCluster | None = None) -> StreamView:
    return StreamView(config, stored(1, 2), CREATED, cluster)


def test_marked_stream_counts_as_made_at_its_loss() -> None:
    lost_at = datetime(2026, 1, 2, tzinfo=UTC)
    plain = view({"name": "S", "metadata": {"theirs": "kept"}})

    marked = view(with_mark(plain.config, lost_at))

    assert plain.made_at == datetime(2026, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)
    assert marked.made_at == lost_at
    assert marked.config["metadata"]["theirs"] == "kept"
    assert view(with_mark({"name": "S"}, lost_at)).made_at == lost_at


def test_lacking_replicas_are_named() -> None:
    peers = (Peer("n3", current=True, offline=True), Peer("n2"), Peer("n1", current=True))

    well = view({"num_replicas": 3}, StreamCluster("n1", (Peer("n2", current=True),)))
    alone = view({})
    weak = view({"num_replicas": 3}, StreamCluster("n1", peers))

    assert lacking_replicas(well, 3) == []
    assert lacking_replicas(alone, 1) == []
    assert lacking_replicas(alone, 3) == ["1 of 3 replicas"]
    assert lacking_replicas(weak, 3) == ["a replica that is away or behind, on n2, n3"]
