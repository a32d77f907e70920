"""Processes that a vendor's tool lists, with what this host knows of them."""

from collections.abc import Hashable, Mapping
from typing import TypeVar

import msgspec

from schemas.telemetry.readings import GpuProcess
from services.telemetry.host.processes import ProcessFacts, ProcessTable

K = TypeVar("K", bound=Hashable)


def with_details(
    table: ProcessTable, processes: Mapping[K, tuple[GpuProcess, ...]]
) -> dict[K, tuple[GpuProcess, ...]]:
    """The same keys; a process that is not visible here keeps the tool's values."""
    table.forget_ended(process.pid for group in processes.values() for process in group)
    return {
        key: tuple(_with_facts(process, table.facts(process.pid)) for process in group)
        for key, group in processes.items()
    }


def _with_facts(process: GpuProcess, facts: ProcessFacts) -> GpuProcess:
    return msgspec.structs.replace(
        process,
        name=facts.name or process.name,
        container_id=facts.container_id,
        reservation_id=facts.reservation_id,
        pod_uid=facts.pod_uid,
    )
