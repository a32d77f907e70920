"""What every runtime is to an attempt: it starts one engine, and answers for what it started.

A workload is known by its labels alone, so that an executor which has lost its memory, or died in
the middle of any step, still finds everything. Only what carries the reservation, this installation
and this node is ever touched.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import UUID

from msgspec import Struct

from schemas.cluster.kubernetes import EnginePod
from schemas.executor.attempts import EngineSpec, Failure, Runtime, RuntimeOffer, StartExperiment
from services.executor.host.processes import ProcessMark, WorkloadLabel
from shared.errors import StewardError

CERTIFICATE: Final = "engine.crt"
SIGNALLED: Final = 128  # and a signal's number: the exit code of what it ended in a container


def certificate_in(directory: Path) -> Path | None:
    """Return the certificate of the engine of an attempt, by the attempt's directory."""
    path = directory / CERTIFICATE
    return path if path.is_file() else None


class RuntimeUnavailable(StewardError):
    """The runtime does not answer, so that what runs is not known; the text says why."""


class PortTaken(StewardError):
    """Another program was quicker to listen on the port that was free a moment ago."""


class Labels(WorkloadLabel, frozen=True, kw_only=True):
    """Whose a workload is. Without an `experiment_id` it is not an attempt's."""

    node_id: str
    epoch: int | None = None
    experiment_id: UUID | None = None

    @property
    def cgroup_names(self) -> tuple[str, ...]:
        return (self.installation_id, self.node_id, str(self.reservation_id))


class Workload(Struct, frozen=True, kw_only=True):
    """What runs, or could be started again, under one reservation: as far as a runtime knows.

    In a cluster `container_ids` are pods by name. `is_running` False: a container that was made and
    not started, or that has ended. `is_named`: it names this installation; a command of a host that
    only joined may name none.
    """

    labels: Labels
    pids: tuple[int, ...] = ()
    container_ids: tuple[str, ...] = ()
    is_running: bool = True
    is_named: bool = True


class LogSink(Protocol):
    """Where what an engine writes is kept, bounded."""

    @property
    def path(self) -> Path: ...

    def append(self, data: bytes) -> None:
        """Keep it, or count it as lost if the disk is full; never raises."""

    def tail(self, lines: int) -> str:
        """The end of what was written."""


async def _nowhere(_: EnginePod | str) -> None:
    """Ignore the call, for runtimes without pods or images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """All that one engine is started from. `served_model_name` is what it is asked for by.

    `rank_parameters` are the engine's flags that make it one rank of several; empty without.
    `secrets` go into the engine's environment, by name, and nowhere else.
    `remember` journals the mark of a process before anything may go wrong with it, `bound` the pod
    that a cluster has bound, `image_known` the container image that runs. `report` takes what an
    engine waits for, in a sentence. `take_cache` gives a directory of this host for what an engine
    of that image or program compiles, None for none; it may block.
    """

    command: StartExperiment
    labels: Labels
    directory: Path
    log: LogSink
    served_model_name: str
    remember: Callable[[ProcessMark], Awaitable[None]]
    rank_parameters: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    report: Callable[[str], None] = lambda _: None
    take_cache: Callable[[str], Path | None] = lambda _: None
    bound: Callable[[EnginePod], Awaitable[None]] = _nowhere
    image_known: Callable[[str], Awaitable[None]] = _nowhere

    @property
    def certificate_path(self) -> Path:
        """Return the path for the certificate of an engine that speaks TLS."""
        return self.directory / CERTIFICATE

    @property
    def certificate(self) -> Path | None:
        """The one certificate that the engine may show; None of one that speaks plain HTTP."""
        return certificate_in(self.directory)

    @property
    def ends_when(self) -> str:
        """Say when it ends by itself; a rank that answers no HTTP does not know."""
        return "during the benchmark" if self.command.gang is None else "by itself"


class RunningEngine(Protocol):
    """A started engine. `stop` has to be called, whatever happened; it may be called again."""

    async def until_ready(self, timeout_seconds: float) -> str:
        """Wait until it answers its readiness path with 200; its base URL, without `/v1`.

        Raises AttemptFailed when it ends or takes longer, with its exit and its last lines;
        PortTaken when its port was taken, after which another start may succeed.
        """

    async def until_ended(self) -> Failure:
        """Wait until it ends by itself; why that fails a benchmark."""

    async def stop(self, grace_seconds: float) -> None:
        """SIGTERM, `grace_seconds`, SIGKILL; return once nothing of it runs and nothing is left.

        Takes as long as it needs, through restarts of whatever the runtime depends on.
        """


class EngineRuntime(Protocol):
    """One way to run engines, on this host or in a cluster. No call blocks the event loop."""

    @property
    def kind(self) -> Runtime: ...

    async def offer(self) -> RuntimeOffer:
        """Return what can be started now, and what is missing for the rest; within 2 s, never
        raises.
        """

    def check(self, command: StartExperiment) -> None:
        """Raises RefusedError naming the field, if this host could not run it whatever is free."""

    async def prepare(self, engine: EngineSpec, /) -> str:
        """Have beforehand what `fetch` would, as far as there is room to spare: what was done, in
        words, empty for nothing. It takes no device, and may be cancelled at any time.

        Raises AttemptFailed, RuntimeUnavailable or RefusedError.
        """

    async def fetch(
        self, command: StartExperiment, on_progress: Callable[[float, str], None]
    ) -> None:
        """Have all there that starting needs; `on_progress` gets 0 to 1 and a sentence.

        Raises AttemptFailed.
        """

    async def start(self, launch: Launch) -> RunningEngine:
        """Start it. Raises AttemptFailed; whatever was made until then is gone again.

        If it is cancelled, what it made is found by its labels.
        """

    async def workloads(self) -> tuple[Workload, ...]:
        """Return all workloads of this installation. Raises RuntimeUnavailable. Raises
        RuntimeUnavailable.

        What names another node may be of an executor that shares this host.
        """

    async def end(self, labels: Labels, *, grace_seconds: float = 0.0) -> None:
        """End and remove what carries the reservation of `labels`; return once nothing is left.

        Takes as long as it needs. The epoch and the experiment do not matter.
        """
