"""What the agent has made of each GPU, in a file that outlives it."""

from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from schemas.telemetry.readings import DeviceFacts
from services.telemetry.domain.mig_instances import MigRecord
from services.telemetry.journal_file import replace_journal
from services.telemetry.sources.source import Inventory
from shared.logging import log

_decoder: Final = msgspec.json.Decoder(tuple[MigRecord, ...])


class MigRecords:
    """What the file does not say was made by the agent was not."""

    def __init__(self, path: Path, *, is_allowed: bool) -> None:
        self._path = path
        self.is_allowed = is_allowed
        self._records = {record.device_uuid: record for record in self._load()}

    def of(self, device_uuid: str) -> MigRecord:
        return self._records.get(device_uuid) or MigRecord(device_uuid=device_uuid)

    async def save(self, record: MigRecord) -> None:
        """Raises OSError, and then nothing has changed."""
        records = {**self._records, record.device_uuid: record}
        await replace_journal(self._path, msgspec.json.encode(tuple(records.values())))
        self._records = records

    async def observe(self, inventory: Inventory) -> Inventory:
        """Return the inventory with what the agent made; forget what is gone."""
        devices = tuple([await self._observe(facts) for facts in inventory.devices])
        return replace(inventory, devices=devices)

    async def _observe(self, facts: DeviceFacts) -> DeviceFacts:
        record, layout = self._records.get(facts.uuid), facts.mig_layout
        if record is None:
            return facts if self.is_allowed else replace(facts, mig_layout=None)
        if layout is not None and (remaining := record.present(layout)) != record:
            self._records[facts.uuid] = record = remaining
            try:
                await self.save(record)
            except OSError as error:
                log.error("mig_journal_not_written", path=str(self._path), error=str(error))
        return replace(facts, mig_layout=record.merge_into(layout if self.is_allowed else None))

    def _load(self) -> tuple[MigRecord, ...]:
        try:
            return _decoder.decode(self._path.read_bytes())
        except FileNotFoundError:
            return ()
        except (OSError, msgspec.DecodeError) as error:
            log.error("mig_journal_unreadable", path=str(self._path), error=str(error))
            return ()
