"""What people read of a reservation: that it is idle, has to give way, or is over."""

from datetime import UTC

from schemas.scheduler.namespaces import PREEMPTION_CAUSES
from schemas.scheduler.reasons import Reason, ReasonCode
from schemas.scheduler.views import Idleness
from services.scheduler.domain.idle import idle_sentence
from services.scheduler.ledger.rows.reservation_rows import Reservation
from services.scheduler.ledger.transitions import HELD_ON_LEASE


def idleness(stored: Reservation) -> Idleness | None:
    if stored.state not in HELD_ON_LEASE or stored.idle_since is None or not stored.idle_action:
        return None
    return Idleness(
        since_at=stored.idle_since,
        action=stored.idle_action,
        acts_at=None if stored.idle_preemptible else stored.idle_acts_at,
        preemptible=stored.idle_preemptible,
    )


def notice(stored: Reservation) -> str:
    """Say that a reservation has to give way or is idle, while it still may run."""
    if stored.state not in HELD_ON_LEASE:
        return ""
    if stored.preempting_until is None:
        idle = idleness(stored)
        return idle_sentence(stored.state, idle) if idle is not None else ""
    until = stored.preempting_until.astimezone(UTC)
    return (
        f"{stored.state.value}, but it has to stop by {until:%H:%M:%S} UTC for reservation"
        f" {stored.preempted_for}, {PREEMPTION_CAUSES[stored.preempted_by]}"
    )


def end_reasons(stored: Reservation) -> tuple[Reason, ...]:
    """Say why a reservation is over, or what its devices wait for."""
    if stored.quarantined and stored.cluster is not None:
        cluster_id = stored.cluster.cluster_id
        message = f"cluster {cluster_id} has not confirmed that nothing of it is left"
        return (Reason(code=ReasonCode.QUARANTINED, message=message, node_id=cluster_id),)
    if not stored.quarantined:
        return (Reason(code=ReasonCode.ENDED, message=stored.reason or "the reservation is over"),)
    return tuple(
        Reason(
            code=ReasonCode.QUARANTINED,
            message=f"GPU {device.index} on {device.node_id} waits for the confirmed stop",
            node_id=device.node_id,
            device_uuid=device.uuid,
        )
        for device in stored.devices
    )
