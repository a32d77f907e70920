"""The process that talks to NVML, so that a driver that hangs takes nothing but this along.

Started by `services.telemetry.nvml_probe`; reads requests from stdin, answers on stdout. A number
on the third pipe asks whether a call has been stuck for so many seconds: then another thread takes
over, without that GPU.
"""

import os
import sys
import threading
import time
from typing import Any, Final

import pynvml

from services.telemetry.nvml_host import NvmlHost
from services.telemetry.nvml_jobs import Capping, Job, TakingInventory, TakingReading
from services.telemetry.probe_protocol import (
    LENGTH,
    SECONDS,
    Cap,
    Failed,
    Open,
    ProbeReply,
    ProbeRequest,
    Read,
    Stuck,
    TakeInventory,
    decode_request,
    framed,
)
from shared.lifecycle import die_with_parent, give_back_memory

REQUESTS: Final = 0
_REQUEST_BYTES: Final = 65536


class Server:
    """Answers requests, one GPU after another, in whichever thread is not stuck.

    Threads take turns for good: the one that hangs in the driver has lost its turn, and when its
    call returns it says no more than that this GPU can be asked again.
    """

    def __init__(self, host: NvmlHost, replies: int, rescues: int) -> None:
        self._host = host
        self._replies = replies
        self._rescues = rescues
        self._lock = threading.Lock()
        self._turn = 0
        self._asking: tuple[int, float] | None = None
        self._job = Job(Failed("nothing was asked"))

    def run(self) -> None:
        """Serve until the other side closes."""
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
        """Whether it is still this thread's turn afterwards."""
        try:
            self._job = self._begun(request)
        except pynvml.NVMLError as error:
            self._job = Job(Failed(str(error)))
        return self._finish(self._job, turn)

    def _begun(self, request: ProbeRequest) -> Job:
        match request:
            case Open():
                return Job(self._host.open())
            case TakeInventory():
                return TakingInventory(self._host, request)
            case Read():
                return TakingReading(self._host)
            case Cap():
                return Capping(self._host, request)

    def _finish(self, job: Job, turn: int) -> bool:
        """Ask the GPUs that are left, and reply. False when the turn was lost meanwhile."""
        try:
            while job.left:
                index = job.left.popleft()
                self._asking = (index, time.monotonic())
                found, failure = _tried(job, index)
                with self._lock:
                    if turn != self._turn:
                        self._host.stuck.pop(index, None)
                        return False
                    self._asking = None
                if failure is not None:
                    raise failure
                job.note(index, found)
            reply = job.reply()
        except pynvml.NVMLError as error:
            reply = Failed(str(error))
        _send(self._replies, reply)
        return True

    def _watch(self) -> None:
        """Take over from a thread that is stuck, each time the other side asks for it."""
        while request := os.read(self._rescues, SECONDS.size):
            (stuck_seconds,) = SECONDS.unpack(request)
            with self._lock:
                asking = self._asking
                if asking is None or time.monotonic() - asking[1] < stuck_seconds:
                    continue
                self._turn += 1
                turn = self._turn
                self._asking = None
                self._host.stuck[asking[0]] = asking[1]
            _send(self._replies, Stuck(asking[0], self._host.uuids_at(asking[0])))
            threading.Thread(target=self._watch, daemon=True).start()
            if self._finish(self._job, turn):
                self._serve(turn)
            return


def _tried(job: Job, index: int) -> tuple[Any, pynvml.NVMLError | None]:
    try:
        return job.ask(index), None
    except pynvml.NVMLError as error:
        return None, error


def _receive(source: int) -> ProbeRequest | None:
    """The next request; None when the other side has closed. There is one at a time."""
    data = os.read(source, _REQUEST_BYTES)
    while data and len(data) < LENGTH.size + LENGTH.unpack_from(data)[0]:
        more = os.read(source, _REQUEST_BYTES)
        if not more:
            return None
        data += more
    return decode_request(data[LENGTH.size :]) if data else None


def _send(replies: int, reply: ProbeReply) -> None:
    data = memoryview(framed(reply))
    while data:
        data = data[os.write(replies, data) :]


def main() -> None:
    """Serve on stdin and stdout; what the library prints goes to stderr instead."""
    parent_pid, rescues, engine_socket = sys.argv[1:4]
    die_with_parent(parent_pid=int(parent_pid))
    replies = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    give_back_memory()
    Server(NvmlHost(engine_socket or None), replies, int(rescues)).run()


if __name__ == "__main__":
    main()
