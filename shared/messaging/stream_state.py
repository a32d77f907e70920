"""What the servers say of a stream, and what follows from it. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from shared.messaging.stream_names import EVENTS
from shared.settings import AUTO, Replicas

AUTO_REPLICAS: Final = 3
EMPTIED_AT: Final = "gpusteward.emptied_at"  # in a stream's metadata, for every service to see


class StreamReplicas(Struct, frozen=True):
    """On how many servers streams are kept: a number, or `auto`, three where there are three."""

    events: Replicas = AUTO
    samples: Replicas = AUTO

    def of(self, stream: str, *, is_clustered: bool) -> int:
        """Return how many replicas a stream is to have, if there are so many servers."""
        setting = self.events if stream == EVENTS else self.samples
        if setting == AUTO:
            return AUTO_REPLICAS if is_clustered else 1
        return int(setting)

    def is_auto(self, stream: str) -> bool:
        """Return True if fewer than `of` are right where there are fewer servers."""
        return (self.events if stream == EVENTS else self.samples) == AUTO


class Peer(Struct, frozen=True):
    """A server that follows the stream's leader."""

    name: str
    current: bool = False
    offline: bool = False


class StreamCluster(Struct, frozen=True):
    """Of a server alone there is none."""

    leader: str | None = None
    replicas: tuple[Peer, ...] = ()


class StoredRange(Struct, frozen=True):
    """Which messages are stored. `first_ts` of an empty stream is the year 1."""

    messages: int
    first_seq: int
    last_seq: int
    first_ts: str = ""


class StreamView(Struct, frozen=True):
    """The answer of `$JS.API.STREAM.INFO`."""

    config: dict[str, Any]
    state: StoredRange
    created: str
    cluster: StreamCluster | None = None

    @property
    def replicas(self) -> int:
        """The number of servers that are to keep it."""
        return int(self.config.get("num_replicas", 1))

    @property
    def made_at(self) -> datetime:
        """The time when it was made, or found to have lost everything: what was published earlier
        may be missing.
        """
        mark = (self.config.get("metadata") or {}).get(EMPTIED_AT)
        made_at = datetime.fromisoformat(self.created)  # to the microsecond, as it is remembered
        return made_at if mark is None else max(made_at, datetime.fromisoformat(mark))


def has_lost_all(previous: StoredRange, current: StoredRange) -> bool:
    """Return True if the messages of `current` cannot be those of `previous` and later ones.

    A server that comes back without its disk has the only replica again, empty and of the same age.
    Sequences only grow, whatever expires, and the message of a sequence stays the same.
    """
    if current.last_seq == 0 or current.first_seq < previous.first_seq:
        return previous.last_seq > 0
    is_same_place = (
        current.first_seq == previous.first_seq and current.messages and previous.messages
    )
    return bool(is_same_place) and current.first_ts != previous.first_ts


def with_mark(config: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Return the configuration with the note that the stream has lost everything before `now`."""
    metadata = {**(config.get("metadata") or {}), EMPTIED_AT: now.isoformat()}
    return {**config, "metadata": metadata}


def lacking_replicas(view: StreamView, target: int) -> Sequence[str]:
    """Return what a stream lacks in replicas, a phrase each; none where all is as configured."""
    lacks = []
    if view.replicas < target:
        lacks.append(f"{view.replicas} of {target} replicas")
    peers = view.cluster.replicas if view.cluster is not None else ()
    away = [peer.name for peer in peers if peer.offline or not peer.current]
    if away:
        lacks.append(f"a replica that is away or behind, on {', '.join(sorted(away))}")
    return lacks
