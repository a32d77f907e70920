"""What a tool is: a coroutine with a Struct of arguments, a Struct of an answer, and a role."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar, get_type_hints

import msgspec
from msgspec import Struct

from schemas.gateway.endpoint import Endpoint
from schemas.gateway.tokens import Role
from services.cli.mcp_server.budget import Budget
from shared.client.http import StewardClient

MAX_WAIT_SECONDS: Final = 30.0
A = TypeVar("A", bound=Struct)
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Agent:
    """For whom a tool runs: a client with its token. Without a budget it changes nothing."""

    client: StewardClient
    budget: Budget | None = None


class Arguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a tool takes; most of them nothing."""

    def parameters(self) -> dict[str, Any]:
        """Return what an operation of the API takes for these arguments, by name."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


class Change(Arguments, frozen=True, kw_only=True):
    """What a tool that changes something takes: `dry_run` only says what would happen."""

    dry_run: bool = True


@dataclass(frozen=True, slots=True)
class Tool:
    """`role` is the least that its caller must have: viewer's tools only read."""

    name: str
    description: str
    role: Role
    arguments: type[Arguments]
    answer: type[Any]
    run: Callable[[Agent, Any], Awaitable[Any]]

    @property
    def is_change(self) -> bool:
        return issubclass(self.arguments, Change)

    def input_schema(self) -> dict[str, Any]:
        return object_schema(self.arguments)

    def output_schema(self) -> dict[str, Any]:
        return object_schema(self.answer)


@dataclass(frozen=True, slots=True)
class ToolTable:
    """Tools by name."""

    tools: dict[str, Tool]

    def tool(
        self, role: Role
    ) -> Callable[[Callable[[Agent, A], Awaitable[R]]], Callable[[Agent, A], Awaitable[R]]]:
        """Declare one: its name, text, arguments and answer are those of the function."""

        def declare(
            run: Callable[[Agent, A], Awaitable[R]],
        ) -> Callable[[Agent, A], Awaitable[R]]:
            name = getattr(run, "__name__", "")
            _, arguments, answer = get_type_hints(run).values()
            self.tools[name] = Tool(name, run.__doc__ or "", role, arguments, answer, run)
            return run

        return declare

    def forward(
        self,
        name: str,
        endpoint: Endpoint[Any],
        description: str,
        arguments: type[Arguments] = Arguments,
        *,
        body: str | None = None,
    ) -> None:
        """Declare a tool that calls one operation; `body` is the argument that is its body."""

        async def run(agent: Agent, values: Arguments) -> Any:
            parameters = values.parameters()
            document = parameters.pop(body) if body is not None else None
            return await agent.client.call(endpoint, document, **parameters)

        self.tools[name] = Tool(name, description, endpoint.role, arguments, endpoint.answer, run)


def object_schema(struct: type[Any]) -> dict[str, Any]:
    """A Struct's JSON schema with an object at its root, as MCP wants it."""
    schema: Mapping[str, Any] = msgspec.json.schema(struct)
    definitions = dict(schema.get("$defs", {}))
    root = definitions[str(schema["$ref"]).rpartition("/")[2]]
    return {**root, "$defs": definitions}
