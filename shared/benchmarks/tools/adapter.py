"""What every benchmark tool is to its caller: a target, a folder, progress, one result."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

from schemas.task.benchmark import BenchmarkResult, BenchmarkSpec, BenchmarkTool
from shared.errors import StewardError


class BenchmarkFailed(StewardError):
    """The tool gave no result; the text says why, in a sentence for people."""


class DamagedResult(StewardError):
    """A file is not what the tool writes."""


class ServerUnreachable(BenchmarkFailed):
    """The server did not list its models, or did not answer a first request."""


class ModelNotServed(BenchmarkFailed):
    """The server does not offer the model that the benchmark asks for."""


class ServerGone(ServerUnreachable):
    """The server stopped answering. `measured` is what there was until then, None if nothing."""

    def __init__(self, message: str, measured: BenchmarkResult | None = None) -> None:
        super().__init__(message)
        self.measured = measured


def server_gone(base_url: str, num_levels: int, measured: BenchmarkResult) -> ServerGone:
    """Make the error for a server that stopped answering after some of its levels."""
    counts = measured.metrics
    return ServerGone(
        f"the server at {base_url} stopped answering after {len(measured.levels)} of "
        f"{num_levels} levels; {counts.total_error_requests} of {counts.total_requests} requests "
        "failed",
        measured,
    )


class LoadPhase(StrEnum):
    """What a level is doing; requests of the warm-up count nowhere."""

    WARMING_UP = "warming_up"
    MEASURING = "measuring"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far the benchmark is. Counts and time are the current level's, `total` its limit."""

    phase: LoadPhase
    level_no: int
    levels_total: int
    scenario: str
    num_concurrency: int
    completed: int
    failed: int
    total: int
    elapsed_seconds: float
    arrivals: str | None = None

    @property
    def load_text(self) -> str:
        return self.arrivals or f"concurrency {self.num_concurrency}"


ProgressCallback = Callable[[Progress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The server under load. `base_url` is without `/v1`.

    `model` is where this host finds what is served: a folder, a GGUF file or a hub's name; None if
    unknown. `certificate` is a file with the one certificate that the server may show; None: what
    the system trusts. `api_key` is shown to the server and written nowhere; `hub_token` is for
    tokenizers, in place of this process's HF_TOKEN.
    """

    base_url: str
    model_name: str
    model: str | None = None
    certificate: Path | None = None
    api_key: str | None = field(default=None, repr=False)
    hub_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFiles:
    """What a load is made of: `prompts` of a dataset, by `shared.benchmarks.prompts`, sessions of a
    `trace`, by `shared.benchmarks.traced`. None: there is none.
    """

    prompts: Path | None = None
    trace: Path | None = None

    def remove(self) -> None:
        """Remove them, as attempts are kept for long, and these may be large."""
        for path in (self.prompts, self.trace):
            if path is not None:
                path.unlink(missing_ok=True)


NO_FILES: Final = LoadFiles()


class Adapter(Protocol):
    """One tool. `label` goes into everything that the tool measured."""

    @property
    def label(self) -> BenchmarkTool: ...

    def missing(self) -> str | None:
        """Say what to install before this host can run the tool; None if nothing. Cheap: called
        often.
        """

    def check(self, spec: BenchmarkSpec) -> None:
        """Raises UnsupportedTraffic, naming the field, for what this tool cannot generate."""

    async def run(
        self,
        spec: BenchmarkSpec,
        target: Target,
        *,
        directory: Path,
        on_progress: ProgressCallback | None = None,
        files: LoadFiles = NO_FILES,
    ) -> BenchmarkResult:
        """Run every scenario at every concurrency, one level after the other.

        `directory` is the tool's own, for whatever it writes. Failed requests are counted in the
        result, even if all failed. Cancelling leaves nothing running. Raises UnsupportedTraffic
        before anything is sent, and BenchmarkFailed.
        """
