"""What GPUs were in while they were sampled, and by it which of them a pod had."""

from collections.abc import Iterable
from typing import Final

import msgspec

from schemas.cluster.kubernetes import EnginePod
from schemas.executor.attempts import AttemptFinished, Runtime
from schemas.gpus.device_grant import DeviceGrant
from services.results.domain import pod_devices
from services.results.domain.packed_spans import spans_of
from services.results.domain.pod_devices import ReportedDevice
from services.results.domain.reading import Condition
from shared.postgres.database import Connection, from_json

CLUSTER_RUNTIMES: Final = frozenset({Runtime.OME, Runtime.KUBERNETES})
NO_POD: Final = "its executor did not tell which pod it ran in"

SELECT_CONDITIONS: Final = "SELECT condition_no, facts FROM condition WHERE condition_no = ANY ($1)"

# Copied samples stay when the others have been dropped.
SELECT_SEEN: Final = f"""
SELECT node_id, device_uuid AS uuid, device_index AS index, name, simulated,
       max(memory_total_mb) AS memory_total_mb, condition_no
FROM device JOIN (
    SELECT device_no, memory_total_mb, condition_no FROM stored_sample
    WHERE device_no IN (SELECT device_no FROM device WHERE node_id = $1)
      AND observed_at >= $2 AND observed_at <= $3 AND {spans_of("$2", "$3")}
    UNION ALL
    SELECT device_no, memory_total_mb, condition_no FROM experiment_sample
    WHERE attempt_id = $4 AND observed_at >= $2 AND observed_at <= $3) AS seen USING (device_no)
WHERE node_id = $1 GROUP BY device_no, condition_no
"""


async def devices_of(
    connection: Connection, event: AttemptFinished
) -> tuple[tuple[DeviceGrant, ...], str]:
    """Return the devices that an attempt was granted, or else that its pods had; or why they are
    unknown.
    """
    if event.pod is None:
        return event.devices, NO_POD if event.engine.runtime in CLUSTER_RUNTIMES else ""
    devices: list[DeviceGrant] = []
    for pod in event.pods:
        had, unknown = await _devices_of_pod(connection, event, pod)
        if unknown:  # a part of an engine's GPUs would be read as all of them
            return (), unknown
        devices += had
    return tuple(devices), ""


async def _devices_of_pod(
    connection: Connection, event: AttemptFinished, pod: EnginePod
) -> tuple[tuple[DeviceGrant, ...], str]:
    rows = await connection.fetch(
        SELECT_SEEN, pod.node_id, event.started_at, event.finished_at, event.attempt_id
    )
    conditions = await conditions_of(connection, (row["condition_no"] for row in rows))
    return pod_devices.devices_of(
        pod,
        (
            ReportedDevice(
                msgspec.convert(row, DeviceGrant),
                condition.pods if (condition := conditions.get(row["condition_no"])) else None,
            )
            for row in rows
        ),
    )


async def conditions_of(
    connection: Connection, numbers: Iterable[int | None]
) -> dict[int, Condition]:
    rows = await connection.fetch(SELECT_CONDITIONS, [n for n in set(numbers) if n is not None])
    return {row["condition_no"]: from_json(row["facts"], Condition) for row in rows}
