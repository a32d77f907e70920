"""Servers that run already: measured as they are, never started and never stopped."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from schemas.errors import ErrorCode
from schemas.executor.attempts import (
    EngineSpec,
    Failure,
    FailureKind,
    Runtime,
    RuntimeOffer,
    StartExperiment,
)
from schemas.task.endpoint import EngineEndpoint
from services.executor.domain.verdict import AttemptFailed, failure
from services.executor.engines.engine import Engine
from services.executor.engines.engine_table import ENGINES
from services.executor.host.servers import base_of, refuse_host
from services.executor.runtimes.runtime import Labels, Launch, Workload
from shared.benchmarks.chat_server import ChatServer
from shared.benchmarks.tools.adapter import ModelNotServed, ServerUnreachable
from shared.engines.openai_api import OPENAI
from shared.errors import RefusedError
from shared.waiting import within

CHECK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class EndpointRuntime:
    """`engines` are the names by which a task may call the server's engine, beside `openai`;
    `hosts` are those that may be asked, empty for all.
    """

    kind = Runtime.ENDPOINT
    hosts: frozenset[str] = frozenset()
    engines: Mapping[str, Engine] = field(default_factory=lambda: ENGINES)

    async def offer(self) -> RuntimeOffer:
        """Offer to measure every engine: what a server lacks shows when it is asked."""
        return RuntimeOffer(
            runtime=Runtime.ENDPOINT,
            engines=(*self.engines, OPENAI),
        )

    def check(self, command: StartExperiment) -> None:
        """Raises RefusedError naming the field."""
        if command.devices:
            raise RefusedError(
                ErrorCode.BAD_REQUEST,
                f"expected no granted devices for a server that runs already, got "
                f"{len(command.devices)}",
                path="$.devices",
            )
        key = endpoint_of(command.engine).api_key
        if key is not None and key not in command.secrets:
            raise RefusedError(
                ErrorCode.BAD_REQUEST,
                f"expected one of the task's secrets, got {key!r}",
                path="$.engine.endpoint.api_key",
            )

    async def prepare(self, _: EngineSpec) -> str:
        """Do nothing: the server runs."""
        return ""

    async def fetch(
        self, command: StartExperiment, on_progress: Callable[[float, str], None]
    ) -> None:
        """Do nothing: the server has its model."""

    async def start(self, launch: Launch) -> "EndpointEngine":
        """Return the server. Raises AttemptFailed for an address that tasks may not ask."""
        endpoint = endpoint_of(launch.command.engine)
        try:
            await refuse_host(endpoint.url, self.hosts)
        except RefusedError as error:
            raise AttemptFailed.of(FailureKind.BAD_PARAMETER, error.message) from error
        key = launch.secrets.get(endpoint.api_key) if endpoint.api_key else None
        return EndpointEngine(
            url=base_of(endpoint.url),
            model_name=launch.served_model_name,
            api_key=key,
        )

    async def workloads(self) -> tuple[Workload, ...]:
        """Return none: what runs there is not this installation's."""
        return ()

    async def end(self, labels: Labels, *, grace_seconds: float = 0.0) -> None:
        """Do nothing: whoever started the server ends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointEngine:
    """A server of somebody else's, by its address without `/v1`."""

    url: str
    model_name: str
    api_key: str | None = field(default=None, repr=False)

    async def until_ready(self, timeout_seconds: float) -> str:
        """Return the address once the server lists the model; a server that runs is not waited for
        longer than `timeout_seconds`, nor one that serves other models.

        Raises AttemptFailed.
        """
        reason = "no answer"
        with contextlib.suppress(TimeoutError):
            async with within(timeout_seconds):
                while True:
                    try:
                        async with self._connect() as server:
                            await server.find_model()
                            return self.url
                    except ModelNotServed as error:
                        raise AttemptFailed.of(FailureKind.MODEL_MISSING, str(error)) from error
                    except ServerUnreachable as error:
                        reason = str(error)
                    await asyncio.sleep(CHECK_SECONDS)
        raise AttemptFailed.of(
            FailureKind.READINESS_TIMEOUT,
            f"expected a server at {self.url} within {timeout_seconds:g} s: {reason}",
        )

    async def until_ended(self) -> Failure:
        """Wait until the server refuses connections: one that is merely busy is given time."""
        async with self._connect() as server:
            # Nothing but the next question tells of its end.
            while await server.answers():  # noqa: ASYNC110
                await asyncio.sleep(CHECK_SECONDS)
        return failure(
            FailureKind.ENGINE_EXITED,
            f"the server at {self.url} stopped answering during the benchmark",
        )

    async def stop(self, grace_seconds: float) -> None:
        """Do nothing: it goes on running."""

    def _connect(self) -> ChatServer:
        return ChatServer(base_url=self.url, model_name=self.model_name, api_key=self.api_key)


def endpoint_of(engine: EngineSpec) -> EngineEndpoint:
    """Return the server that an engine's spec names. Raises RefusedError without one."""
    if engine.endpoint is None:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            "expected the address of a server for runtime 'endpoint', got none",
            path="$.engine.endpoint",
        )
    return engine.endpoint
