"""What the state of Postgres and its standbys means for what was acknowledged."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from schemas.gateway.health import HealthWarning, WarningCode

BEHIND_BYTES = 16 << 20  # one segment of the log of writes
KEPT = frozenset({"sync", "quorum"})
WAITS_FOR_STANDBY = frozenset({"on", "remote_write", "remote_apply"})


class Standby(Struct, frozen=True, kw_only=True):
    """A server that receives the log. What its role is None for may not be read: grant
    `pg_read_all_stats` to the gateway's role.
    """

    name: str
    state: str | None = None
    sync_state: str | None = None
    behind_bytes: int | None = None

    @property
    def is_known(self) -> bool:
        return self.state is not None


class PostgresState(Struct, frozen=True, kw_only=True):
    """As one server says it. `synchronous_names` is `synchronous_standby_names`."""

    takes_writes: bool
    synchronous_names: str = ""
    synchronous_commit: str = "on"
    standbys: tuple[Standby, ...] = ()

    @property
    def is_synchronous(self) -> bool:
        """True if a commit waits until another server has it."""
        return bool(self.synchronous_names.strip()) and self.synchronous_commit in WAITS_FOR_STANDBY


def find_warnings(state: PostgresState) -> Iterator[HealthWarning]:
    """Yield what a person should know; none of it keeps the platform from working now."""
    names = _names(state.standbys)
    if state.standbys and not state.is_synchronous:
        yield HealthWarning(
            code=WarningCode.POSTGRES_ASYNCHRONOUS,
            message=(
                f"no standby of Postgres is synchronous ({names}): what was acknowledged in the "
                "moments before the primary is lost may be lost with it"
            ),
        )
    if state.is_synchronous and not _has_synchronous(state.standbys):
        yield HealthWarning(
            code=WarningCode.POSTGRES_STANDBY_AWAY,
            message=(
                "Postgres waits with every commit for a standby that is away: "
                f"synchronous_standby_names is {state.synchronous_names!r}, "
                f"connected are {names or 'none'}"
            ),
        )
    if late_standbys := [standby for standby in state.standbys if _is_behind(standby)]:
        yield HealthWarning(
            code=WarningCode.POSTGRES_STANDBY_BEHIND,
            message=f"standbys of Postgres are behind: {'; '.join(map(_lateness, late_standbys))}",
        )


def _has_synchronous(standbys: Sequence[Standby]) -> bool:
    """Return False only where that is known."""
    return any(standby.sync_state in KEPT or not standby.is_known for standby in standbys)


def _is_behind(standby: Standby) -> bool:
    is_catching_up = standby.is_known and standby.state != "streaming"
    return is_catching_up or (standby.behind_bytes or 0) > BEHIND_BYTES


def _lateness(standby: Standby) -> str:
    if standby.behind_bytes is None:
        return f"{standby.name} ({standby.state})"
    return f"{standby.name} by {standby.behind_bytes / (1 << 20):.0f} MB ({standby.state})"


def _names(standbys: Sequence[Standby]) -> str:
    return ", ".join(standby.name for standby in standbys)
