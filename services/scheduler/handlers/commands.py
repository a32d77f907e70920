"""Commands that are applied one by one: checked, applied once, answered after the commit."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from schemas.base import Command, DeviceUuid, NodeId
from schemas.errors import Accepted, ErrorCode, Reply
from schemas.executor.attempts import FenceReservation
from schemas.scheduler.devices import Cordon, Drain, Uncordon
from schemas.scheduler.idle import ExemptReservation
from schemas.scheduler.namespaces import NamespaceSet, SetNamespace
from schemas.scheduler.nodes import (
    AdmitNode,
    LabelNode,
    NodeAdmitted,
    NodeLabelled,
    NodeRemoved,
    RemoveNode,
)
from schemas.scheduler.reservations import CancelReservation, ReservationState
from services.scheduler.domain.model.namespaces import Quota
from services.scheduler.domain.placement.shares import hundredths
from services.scheduler.intake import validation
from services.scheduler.ledger import idle_reservations, out_of_service, transitions
from services.scheduler.ledger.leader_election import pause_decisions
from services.scheduler.ledger.rows import (
    holding_rows,
    label_rows,
    node_rows,
    quota_rows,
    reservation_rows,
)
from services.scheduler.observations.node_liveness import NodeLiveness
from shared.errors import RefusedError
from shared.gpu.selectors import check_text
from shared.gpu.shares import MPS_LABEL
from shared.ids import new_id
from shared.logging import log
from shared.messaging.expected_revision import require_revision
from shared.postgres.commands import once
from shared.postgres.database import Connection, Database
from shared.postgres.outbox import stage

C = TypeVar("C", bound=Command)
Handler = Callable[[C], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Commands:
    """Handlers of what is not batched, and of the replies to the scheduler's own commands.

    A node of which nothing came for `left_seconds` may be removed.
    """

    database: Database
    liveness: NodeLiveness
    left_seconds: float

    def once(self, apply: Callable[[Connection, C], Awaitable[Accepted]]) -> Handler[C]:
        """The handler that checks a command, and applies it if that was not done before."""

        async def handle(command: C) -> Reply:
            async def apply_checked(connection: Connection) -> Accepted:
                for name in ("reason", "device_uuid", "set_by"):
                    check_text(getattr(command, name, None) or "", f"$.{name}")
                return await apply(connection, command)

            return await once(self.database, command, apply_checked)

        return handle

    async def confirm_fence(self, connection: Connection, command: Command, reply: Reply) -> None:
        """A node's reply to a fence: acceptance confirms the stop that its devices wait for."""
        if not isinstance(command, FenceReservation):
            return
        if not isinstance(reply, Accepted):
            log.error(
                "fence_refused",
                reservation_id=str(command.reservation_id),
                node_id=command.executor_id,
                code=reply.code.value,
                message=reply.message,
            )
            return
        stored = await reservation_rows.lock_one(connection, command.reservation_id)
        if stored is not None and stored.quarantined:
            now = await reservation_rows.database_now(connection)
            await transitions.free(
                connection,
                stored,
                now,
                "the node confirmed the stop",
                only_node=command.executor_id,
            )

    async def remove_node(self, connection: Connection, command: RemoveNode) -> Accepted:
        """Forget a node that has left, and what is held there if the sender vouches for its end."""
        node_id = command.node_id
        await pause_decisions(connection)
        await node_rows.check_known(connection, node_id)
        has_stopped = await node_rows.has_stopped(connection, node_id)
        if self.liveness.has_reported(node_id, self.left_seconds, agent=not has_stopped):
            raise RefusedError(
                ErrorCode.CONFLICT,
                f"{node_id} still reports; stop its agent and executor first, and"
                f" {self.left_seconds:g} s later it can be removed",
            )
        held_devices = await holding_rows.list_held_on(connection, node_id, None)
        if held_devices and not command.end_held:
            raise RefusedError(
                ErrorCode.CONFLICT,
                f"{len(held_devices)} devices of {node_id} are held; removing it ends their"
                " reservations, and takes the sender's word (`end_held`) that nothing runs there"
                " any more",
            )
        reason = f"node removed: {command.reason}" if command.reason else "node removed"
        cordon = out_of_service.NewCordon(device_uuid=None, reason=reason)
        await out_of_service.take_out(connection, node_id, ReservationState.LOST, cordon)
        await _confirm_stopped(connection, node_id, None, reason)
        await node_rows.remove(connection, node_id)
        return await _node_changed(
            connection, command, partial(NodeRemoved, node_id=node_id, reason=command.reason)
        )


async def cancel(connection: Connection, command: CancelReservation) -> Accepted:
    """End a reservation in whatever state it is."""
    reservation = await reservation_rows.lock_one(connection, command.reservation_id)
    stored = validation.check_owner(reservation, command)
    require_revision(command.expected_revision, stored.revision)
    now = await reservation_rows.database_now(connection)
    ended = await transitions.cancel(connection, stored, now, command.reason)
    return Accepted(command_id=command.command_id, revision=ended.revision, epoch=ended.epoch)


async def cordon(connection: Connection, command: Cordon | Uncordon) -> Accepted:
    """Grant nothing new there, or again; an administrator may also vouch that quarantined holders
    stopped.
    """
    node_id, device_uuid, reason = command.node_id, command.device_uuid, command.reason
    await pause_decisions(connection)
    await node_rows.check_known(connection, node_id, device_uuid)
    if isinstance(command, Uncordon):
        if command.confirm_stopped:
            why = reason or "confirmed by hand"
            await _confirm_stopped(connection, node_id, device_uuid, why)
        revision = await out_of_service.uncordon(connection, node_id, device_uuid, reason)
    else:
        cordon = out_of_service.NewCordon(
            device_uuid=device_uuid, reason=reason, set_by=command.set_by
        )
        revision = await out_of_service.set_cordon(connection, node_id, cordon)
    return Accepted(command_id=command.command_id, revision=revision)


async def _confirm_stopped(
    connection: Connection, node_id: NodeId, device_uuid: DeviceUuid | None, reason: str
) -> None:
    held_devices = await holding_rows.list_held_on(connection, node_id, device_uuid)
    numbers = {h.device_no for h in held_devices if h.quarantined and h.device_no is not None}
    now = await reservation_rows.database_now(connection)
    reservation_by_id = await reservation_rows.lock(
        connection, {h.held_by for h in held_devices if h.quarantined}
    )
    await transitions.lock_nodes_of(connection, reservation_by_id.values())
    for stored in reservation_by_id.values():
        await transitions.free(connection, stored, now, reason, only=numbers)


async def drain(connection: Connection, command: Drain) -> Accepted:
    """Cordon a node and cancel what is granted there."""
    await pause_decisions(connection)
    await node_rows.check_known(connection, command.node_id)
    cordon = out_of_service.NewCordon(
        device_uuid=None, reason=command.reason or "the node is drained", set_by=command.set_by
    )
    _, revision = await out_of_service.take_out(
        connection, command.node_id, ReservationState.CANCELLED, cordon
    )
    return Accepted(command_id=command.command_id, revision=revision)


async def label_node(connection: Connection, command: LabelNode) -> Accepted:
    """Change what selectors of labels match."""
    node_id = command.node_id
    # Or a share could be granted by the label as it was.
    await pause_decisions(connection)
    await node_rows.check_known(connection, node_id)
    if MPS_LABEL in command.labels and await label_rows.has_shares(connection, node_id):
        raise RefusedError(
            ErrorCode.CONFLICT,
            f"expected no shares held on {node_id} while {MPS_LABEL} changes, found some: whoever"
            " holds them is kept to them, or not, as when they were granted",
            path="$.labels",
        )
    labels = await label_rows.write_labels(connection, node_id, command.labels)
    labelled = partial(NodeLabelled, node_id=node_id, labels=labels)
    return await _node_changed(connection, command, labelled)


async def admit_node(connection: Connection, command: AdmitNode) -> Accepted:
    """Grant on a new node from now on."""
    node_id = command.node_id
    await node_rows.check_known(connection, node_id)
    await node_rows.write_admitted(connection, node_id)
    return await _node_changed(connection, command, partial(NodeAdmitted, node_id=node_id))


async def set_namespace(connection: Connection, command: SetNamespace) -> Accepted:
    """Decide by another quota from now on."""
    limit = None if command.gpu_limit is None else _hundredths(command.gpu_limit, "gpu_limit")
    guaranteed = _hundredths(command.guaranteed_gpus, "guaranteed_gpus")
    if limit is not None and guaranteed > limit:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected at most gpu_limit, {command.gpu_limit:g}, got {command.guaranteed_gpus:g}",
            path="$.guaranteed_gpus",
        )
    quota = Quota(
        namespace=command.namespace, limit=limit, guaranteed=guaranteed, weight=command.weight
    )
    revision = await quota_rows.write(connection, quota)
    now = await reservation_rows.database_now(connection)
    event = NamespaceSet(
        message_id=new_id(),
        occurred_at=now,
        revision=revision,
        namespace=command.namespace,
        gpu_limit=command.gpu_limit,
        guaranteed_gpus=command.guaranteed_gpus,
        weight=command.weight,
    )
    await stage(connection, event)
    return Accepted(command_id=command.command_id, revision=revision)


async def exempt(connection: Connection, command: ExemptReservation) -> Accepted:
    """Never find a reservation idle before a time."""
    reservation = await reservation_rows.lock_one(connection, command.reservation_id)
    stored = validation.check_owner(reservation, command)
    now = await reservation_rows.database_now(connection)
    validation.check_exemption(stored, command.until_at, now)
    exempted = await idle_reservations.exempt(
        connection, stored, command.reason, command.until_at, now
    )
    return Accepted(command_id=command.command_id, revision=exempted.revision)


def _hundredths(gpus: float, name: str) -> int:
    amount = hundredths(gpus)
    if amount is None:
        message = f"expected at most two decimals, got {gpus:g}"
        raise RefusedError(ErrorCode.BAD_REQUEST, message, path=f"$.{name}")
    return amount


async def _node_changed(
    connection: Connection,
    command: AdmitNode | LabelNode | RemoveNode,
    event: Callable[..., NodeAdmitted | NodeLabelled | NodeRemoved],
) -> Accepted:
    revision = await node_rows.next_revision(connection, command.node_id)
    now = await reservation_rows.database_now(connection)
    await stage(connection, event(message_id=new_id(), occurred_at=now, revision=revision))
    return Accepted(command_id=command.command_id, revision=revision)
