"""Divides GPUs in MIG mode anew, as the scheduler asks for it."""

from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from schemas.errors import ErrorCode
from schemas.gpus.mig import ChangeMig, MigInstance
from schemas.telemetry.readings import DeviceFacts, GpuSampled
from services.telemetry.agent import Agent
from services.telemetry.domain.holdings import Holdings
from services.telemetry.domain.mig_instances import MadeInstance, MigRecord, why_not
from services.telemetry.mig.records import MigRecords
from shared.errors import RefusedError
from shared.logging import log

NOT_ALLOWED = "its agent may not make any: GPUSTEWARD_TELEMETRY_MIG_INSTANCES is false"


@dataclass(frozen=True, slots=True)
class MigChanges:
    """A change is on disk before the driver is called, and goes on where a killed agent left it.

    Its end, done or refused, shows in the inventory.
    """

    agent: Agent
    records: MigRecords
    holdings: Holdings
    fresh: Callable[[], GpuSampled | None]

    async def apply(self, command: ChangeMig) -> None:
        """Raises RefusedError (unavailable) for what has to be tried again."""
        if command.number <= self.records.of(command.device_uuid).change:
            return
        try:
            await self.agent.change_devices(lambda: self._change(command))
        except OSError as error:
            # A made instance that the journal lacks would never be removed.
            raise RefusedError(
                ErrorCode.UNAVAILABLE, f"the journal of MIG instances cannot be written: {error}"
            ) from error

    async def _change(self, command: ChangeMig) -> None:
        record = self.records.of(command.device_uuid)
        refusal = self._why_not(command, record)
        if not refusal:
            await self.records.save(replace(record, pending=command.number))
            try:
                record = await self._divide(command, record)
            except RefusedError as error:
                if error.code is ErrorCode.UNAVAILABLE:
                    raise
                refusal = str(error)
        over = replace(record, change=command.number, refusal=refusal, pending=None)
        await self.records.save(over)
        log.info(
            "mig_change_over",
            device=command.device_uuid,
            number=command.number,
            profile=command.profile,
            start=command.start,
            removed=list(command.remove_starts),
            refusal=refusal,
        )

    async def _divide(self, command: ChangeMig, record: MigRecord) -> MigRecord:
        devices, uuid = self.agent.devices, command.device_uuid
        for start in command.remove_starts:
            await devices.remove_mig(uuid, start)
        await devices.make_mig(uuid, command.profile, command.start)
        made = MadeInstance(command.profile, command.start)
        return replace(
            record,
            made=(*(made_instance for made_instance in record.made if made_instance != made), made),
        )

    def _why_not(self, command: ChangeMig, record: MigRecord) -> str:
        if not self.records.is_allowed:
            return NOT_ALLOWED
        facts = self._facts(command.device_uuid)
        if facts is None:
            return f"there is no device {command.device_uuid}"
        if facts.mig_layout is None or not facts.mig_layout.options:
            return "it is not in MIG mode, or its driver does not report what it can make"
        return why_not(command, facts.mig_layout, record, self._use)

    def _facts(self, uuid: str) -> DeviceFacts | None:
        return next((facts for facts in self.agent.devices.facts if facts.uuid == uuid), None)

    def _use(self, instance: MigInstance) -> str:
        """Say by what the instance is used, as the end of a sentence. Raises RefusedError if that
        is unknown.
        """
        sample = self.fresh()
        readings = {} if sample is None else {gpu.uuid: gpu for gpu in sample.gpus}
        for uuid in instance.device_uuids:
            if not self.holdings.is_known or (gpu := readings.get(uuid)) is None:
                raise RefusedError(ErrorCode.UNAVAILABLE, f"it is unknown whether {uuid} is in use")
            if uuid in self.holdings.devices:
                return "is held by a reservation"
            if gpu.processes is None:
                raise RefusedError(ErrorCode.UNAVAILABLE, f"the processes of {uuid} are unknown")
            if gpu.processes:
                return f"runs process {gpu.processes[0].pid}"
        return ""
