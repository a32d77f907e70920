"""What a node double remembers across its own death, and what really runs on its devices."""

import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import msgspec
from msgspec import Struct

from schemas.executor.attempts import StartExperiment
from tests.support.history.records import AnyRecord, Began, Ceased, Confirmed


class Admitted(Struct, frozen=True, kw_only=True, tag=True):
    """A start was accepted."""

    command: StartExperiment


class Fenced(Struct, frozen=True, kw_only=True, tag=True):
    """Nothing may start under this reservation any more."""

    reservation_id: UUID


class Finished(Struct, frozen=True, kw_only=True, tag=True):
    """The attempt has ended and its devices were given back."""

    attempt_id: UUID


Line = AnyRecord | Admitted | Fenced | Finished
_decode = msgspec.json.Decoder(Line).decode


def read_lines(path: Path) -> Iterator[Line]:
    """Every whole line; a killed writer may have left half a one at the end."""
    if not path.exists():
        return
    for line in path.read_bytes().split(b"\n"):
        try:
            yield _decode(line)
        except msgspec.DecodeError:
            continue


class NodeJournal:
    """One line per fact, appended in one write, so that a SIGKILL loses none that was noted."""

    def __init__(self, path: Path) -> None:
        self.admitted: dict[UUID, StartExperiment] = {}
        self.finished: set[UUID] = set()
        self.fenced: set[UUID] = set()
        self.running: dict[tuple[str, UUID], Began] = {}
        for line in read_lines(path):
            self._take(line)
        self._file = path.open("ab", buffering=0)
        self._file.write(b"\n")

    def note(self, line: Line) -> None:
        """Remember, and write down."""
        self._take(line)
        self._file.write(msgspec.json.encode(line) + b"\n")

    @property
    def largest_epoch(self) -> int:
        return max((command.epoch for command in self.admitted.values()), default=0)

    def device_epoch(self, device_uuid: str) -> int:
        """The largest epoch that a device was ever started with."""
        return max(
            (
                command.epoch
                for command in self.admitted.values()
                if any(device.uuid == device_uuid for device in command.devices)
            ),
            default=0,
        )

    def unfinished(self) -> list[StartExperiment]:
        """Accepted and not ended."""
        return [c for i, c in self.admitted.items() if i not in self.finished]

    def runs(self, reservation_id: UUID) -> bool:
        """Whether anything of it runs."""
        return any(work.reservation_id == reservation_id for work in self.running.values())

    def begin(self, node_id: str, command: StartExperiment) -> None:
        for device in command.devices:
            self.note(
                Began(
                    at=time.monotonic(),
                    device=(node_id, device.uuid),
                    reservation_id=command.reservation_id,
                    epoch=command.epoch,
                )
            )

    def cease(self, reservation_id: UUID) -> None:
        for work in [w for w in self.running.values() if w.reservation_id == reservation_id]:
            self.note(
                Ceased(
                    at=time.monotonic(),
                    device=work.device,
                    reservation_id=work.reservation_id,
                    epoch=work.epoch,
                )
            )

    def confirm(self, node_id: str, reservation_id: UUID) -> None:
        self.note(Confirmed(at=time.monotonic(), node_id=node_id, reservation_id=reservation_id))

    def _take(self, line: Line) -> None:
        if isinstance(line, Admitted):
            self.admitted[line.command.attempt_id] = line.command
        elif isinstance(line, Fenced):
            self.fenced.add(line.reservation_id)
        elif isinstance(line, Finished):
            self.finished.add(line.attempt_id)
        elif isinstance(line, Began):
            self.running[(line.device[1], line.reservation_id)] = line
        elif isinstance(line, Ceased):
            self.running.pop((line.device[1], line.reservation_id), None)
