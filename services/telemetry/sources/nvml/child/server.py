"""Answers the requests of `probe.py`, so that a driver that hangs takes only this process with it.

`protocol.py` explains requests, replies and the rescue pipe.
"""

import os
import threading
import time
from typing import Any, Final

import pynvml

from services.telemetry.sources.nvml.child.jobs import InventoryJob, Job, ReadingJob, SettingJob
from services.telemetry.sources.nvml.child.library_state import LibraryState
from services.telemetry.sources.nvml.child.mig_job import MigJob
from services.telemetry.sources.nvml.protocol import (
    LENGTH,
    SECONDS,
    Failed,
    LockClock,
    MakeMig,
    Open,
    ProbeReply,
    ProbeRequest,
    Read,
    RemoveMig,
    SetCap,
    Stuck,
    TakeInventory,
    decode_request,
    frame,
)

REQUESTS: Final = 0
_REQUEST_BYTES: Final = 65536


class ProbeServer:
    """Answers requests, one GPU after another, in whichever thread is not stuck.

    The thread whose number is `_turn` serves. One that hangs in the driver loses its turn for good:
    when its call returns, it marks the GPU as usable again, and ends.
    """

    def __init__(self, state: LibraryState, replies: int, rescues: int) -> None:
        self._state = state
        self._replies = replies
        self._rescues = rescues
        self._lock = threading.Lock()
        self._turn = 0
        self._call: tuple[int, float] | None = None
        self._job = Job(Failed("no request"))

    def run(self) -> None:
        """Serve until the agent closes."""
        threading.Thread(target=self._watch, daemon=True).start()
        self._serve(0)
        # Another thread serves now; it ends the process.
        threading.Event().wait()

    def _serve(self, turn: int) -> None:
        while (request := _receive(REQUESTS)) is not None:
            if not self._answer(request, turn):
                return
        os._exit(0)

    def _answer(self, request: ProbeRequest, turn: int) -> bool:
        """False when this thread lost its turn meanwhile."""
        try:
            self._job = self._begin(request)
        except pynvml.NVMLError as error:
            self._job = Job(Failed(str(error)))
        return self._finish(self._job, turn)

    def _begin(self, request: ProbeRequest) -> Job:
        match request:
            case Open():
                return Job(self._state.open())
            case TakeInventory():
                return InventoryJob(self._state, request)
            case Read():
                return ReadingJob(self._state)
            case SetCap() | LockClock():
                return SettingJob(self._state, request)
            case MakeMig() | RemoveMig():
                return MigJob(self._state, request)

    def _finish(self, job: Job, turn: int) -> bool:
        """Call for the GPUs that are left, and reply. False when the turn was lost meanwhile."""
        try:
            while job.left:
                index = job.left.popleft()
                self._call = (index, time.monotonic())
                result, failure = _try(job, index)
                with self._lock:
                    if turn != self._turn:
                        self._state.stuck.pop(index, None)
                        return False
                    self._call = None
                if failure is not None:
                    raise failure
                job.record(index, result)
            reply = job.reply()
        except pynvml.NVMLError as error:
            reply = Failed(str(error))
        _send(self._replies, reply)
        return True

    def _watch(self) -> None:
        """Take over from a thread that is stuck, whenever a rescue asks for it."""
        while request := os.read(self._rescues, SECONDS.size):
            (stuck_seconds,) = SECONDS.unpack(request)
            with self._lock:
                call = self._call
                if call is None or time.monotonic() - call[1] < stuck_seconds:
                    continue
                self._turn += 1
                turn = self._turn
                self._call = None
                self._state.stuck[call[0]] = call[1]
            _send(self._replies, Stuck(call[0], self._state.uuids_at(call[0])))
            threading.Thread(target=self._watch, daemon=True).start()
            if self._finish(self._job, turn):
                self._serve(turn)
            return


def _try(job: Job, index: int) -> tuple[Any, pynvml.NVMLError | None]:
    try:
        return job.call(index), None
    except pynvml.NVMLError as error:
        return None, error


def _receive(source: int) -> ProbeRequest | None:
    """The next request; None when the agent has closed. There is one at a time."""
    data = os.read(source, _REQUEST_BYTES)
    while data and len(data) < LENGTH.size + LENGTH.unpack_from(data)[0]:
        more = os.read(source, _REQUEST_BYTES)
        if not more:
            return None
        data += more
    return decode_request(data[LENGTH.size :]) if data else None


def _send(replies: int, reply: ProbeReply) -> None:
    data = memoryview(frame(reply))
    while data:
        data = data[os.write(replies, data) :]
