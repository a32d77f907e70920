"""What this host can run, and for the rest what is missing."""

import shutil
from pathlib import Path

from schemas.executor import Runtime, RuntimeOffer
from services.executor.engines.table import ENGINES
from services.executor.settings import ExecutorSettings

BENCHMARK_TOOLS = ("builtin",)


def runtime_offers(settings: ExecutorSettings) -> tuple[RuntimeOffer, ...]:
    """Every runtime there is, with what each lacks here."""
    reasons = {name: engine.missing() for name, engine in ENGINES.items()}
    if not settings.allow_simulated_engine:
        reasons = {
            name: "simulated engines are switched off on this node"
            if ENGINES[name].simulated
            else reason
            for name, reason in reasons.items()
        }
    return (
        RuntimeOffer(
            runtime=Runtime.PROCESS,
            engines=tuple(name for name, reason in reasons.items() if reason is None),
            missing={name: reason for name, reason in reasons.items() if reason is not None},
        ),
        RuntimeOffer(runtime=Runtime.DOCKER, engines=(), missing={"docker": _docker_missing()}),
        RuntimeOffer(
            runtime=Runtime.OME,
            engines=(),
            missing={"ome": "this executor starts processes of its own host only"},
        ),
    )


def _docker_missing() -> str:
    if not Path("/var/run/docker.sock").exists() and shutil.which("docker") is None:
        return "no Docker on this host: neither a `docker` command nor /var/run/docker.sock"
    return "this executor does not start containers"
