"""Whether an attempt may start on this node, from what the node remembers."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Final
from uuid import UUID

from schemas.errors import ErrorCode, Refused
from schemas.executor.attempts import Runtime, StartExperiment
from schemas.gpus.device_grant import DeviceGrant
from services.executor.domain.gang import is_coordinated_by, nodes_of

CLUSTER_RUNTIMES: Final = frozenset({Runtime.OME, Runtime.KUBERNETES})


@dataclass(frozen=True, slots=True, kw_only=True)
class StartHistory:
    """What the journal knows that bears on one `StartExperiment`.

    `device_epochs` are the largest epochs seen on the granted cells of each device;
    `attempt_of_reservation` is another attempt that was given this reservation;
    `blocking_attempts` are unfinished ones of the same experiment or on one of the same cells.
    `is_kept`: the engine that it goes on with is up; such engines count as `unfinished`.
    """

    is_fenced: bool = False
    is_cancelled: bool = False
    device_epochs: Mapping[str, int] | None = None
    attempt_of_reservation: UUID | None = None
    blocking_attempts: tuple[UUID, ...] = ()
    unfinished: int = 0
    is_kept: bool = False


def refuse_misdirected(
    command: StartExperiment, node_id: str, runtimes: Collection[Runtime]
) -> Refused | None:
    """The refusal of a command that is another node's, or for a runtime that is not here."""
    refuse = partial(_refusal, command)
    if command.executor_id != node_id:
        return refuse(
            ErrorCode.BAD_REQUEST,
            f"expected executor {node_id!r}, got {command.executor_id!r}",
            "$.executor_id",
        )
    misplaced = _refuse_misplaced(command) or _refuse_elsewhere(command)
    if misplaced is not None:
        return misplaced
    if command.engine.runtime not in runtimes:
        runtime_names = " or ".join(repr(runtime.value) for runtime in runtimes)
        return refuse(
            ErrorCode.UNSUPPORTED,
            f"expected runtime {runtime_names}, got {command.engine.runtime.value!r}",
            "$.engine.runtime",
        )
    return None


def _refuse_misplaced(command: StartExperiment) -> Refused | None:
    """The refusal of a rank that is not this node's; without devices, any node's will do."""
    refuse = partial(_refusal, command)
    nodes = nodes_of(command.devices)
    place = command.gang
    if not is_coordinated_by(command, command.speaker):
        return refuse(
            ErrorCode.FORBIDDEN,
            f"expected the platform or the coordinating node, found {command.speaker}",
            "$.speaker",
        )
    if place is None:
        if nodes and nodes[0] != command.executor_id:
            return refuse(
                ErrorCode.BAD_REQUEST,
                f"expected a device of {command.executor_id!r}, got one of {nodes[0]!r}",
                "$.devices[0].node_id",
            )
        return None
    expected_node = dict(enumerate(nodes)).get(place.rank)
    if expected_node != command.executor_id or place.size != len(nodes):
        return refuse(
            ErrorCode.BAD_REQUEST,
            f"expected the rank of {command.executor_id!r} among {len(nodes)} nodes, got "
            f"{place.rank} of {place.size}",
            "$.gang.rank",
        )
    if place.coordinator_id != nodes[0]:
        return refuse(
            ErrorCode.BAD_REQUEST,
            f"expected the first device's node {nodes[0]!r}, got {place.coordinator_id!r}",
            "$.gang.coordinator_id",
        )
    return None


def _refuse_elsewhere(command: StartExperiment) -> Refused | None:
    """The refusal of an engine in a cluster without a place there, or of a place without one."""
    refuse = partial(_refusal, command)
    runtime, place = command.engine.runtime, command.cluster
    if place is None:
        if runtime not in CLUSTER_RUNTIMES:
            return None
        message = f"expected a place in a cluster for runtime {runtime.value!r}, got none"
        return refuse(ErrorCode.BAD_REQUEST, message, "$.cluster")
    if runtime not in CLUSTER_RUNTIMES:
        message = f"expected devices for runtime {runtime.value!r}, got a place in a cluster"
        return refuse(ErrorCode.BAD_REQUEST, message, "$.cluster")
    if place.cluster_id != command.executor_id:
        message = f"expected cluster {command.executor_id!r}, got {place.cluster_id!r}"
        return refuse(ErrorCode.BAD_REQUEST, message, "$.cluster.cluster_id")
    if command.devices or command.gang is not None:
        message = "a place in a cluster comes without devices and ranks"
        return refuse(ErrorCode.BAD_REQUEST, message, "$.devices")
    return None


def gpus_of(command: StartExperiment) -> int:
    """Return the GPUs that serve: at least 1 of a server that runs already, where none is known."""
    if command.engine.endpoint is not None:
        return max(1, len(command.engine.endpoint.devices))
    return command.cluster.total_gpus if command.cluster is not None else len(command.devices)


def share_cells(devices: Iterable[DeviceGrant], other_devices: Iterable[DeviceGrant]) -> bool:
    """Return whether two grants share a cell of a device."""
    return any(
        mine.first < other_range.end and other_range.first < mine.end
        for device, other in product(devices, tuple(other_devices))
        if device.uuid == other.uuid
        for mine, other_range in product(device.cells, other.cells)
    )


def refuse_start(
    command: StartExperiment, remembered: StartHistory, *, engine_slots: int
) -> Refused | None:
    """The refusal that the node's memory demands; None lets the attempt start."""
    refuse = partial(_refusal, command)
    if remembered.is_fenced:
        return refuse(
            ErrorCode.LEASE_LOST,
            f"reservation {command.reservation_id} has been fenced on this node",
        )
    if command.kept_from is not None and not remembered.is_kept:
        return refuse(
            ErrorCode.LEASE_LOST,
            f"the engine of attempt {command.kept_from} is not kept up any more",
            "$.kept_from",
        )
    if remembered.is_cancelled:
        return refuse(ErrorCode.CONFLICT, f"attempt {command.attempt_id} has been cancelled")
    epochs = remembered.device_epochs or {}
    for number, device in enumerate(command.devices):
        last_epoch = epochs.get(device.uuid, 0)
        if last_epoch > command.epoch:
            return refuse(
                ErrorCode.STALE_EPOCH,
                f"expected epoch >= {last_epoch} on {device.uuid}, got {command.epoch}",
                f"$.devices[{number}]",
            )
    if remembered.attempt_of_reservation is not None:
        return refuse(
            ErrorCode.CONFLICT,
            f"reservation {command.reservation_id} was given to attempt "
            f"{remembered.attempt_of_reservation}",
            "$.reservation_id",
        )
    if remembered.blocking_attempts:
        return refuse(
            ErrorCode.STILL_RUNNING,
            f"attempt {remembered.blocking_attempts[0]} of the same experiment or device "
            "has not ended",
        )
    if remembered.unfinished >= engine_slots:
        # Not `unavailable`: that would hold back the cancel by which a slot may become free.
        return refuse(
            ErrorCode.STILL_RUNNING,
            f"all {engine_slots} engine slots of this node are taken",
        )
    return None


def _refusal(
    command: StartExperiment, code: ErrorCode, message: str, path: str | None = None
) -> Refused:
    return Refused(code=code, message=message, path=path, command_id=command.command_id)
