"""Lists and calls tools for one caller: what its role may, in the API's own words."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any, Final

import mcp_types as mcp
import msgspec
from mcp.server import Server, ServerRequestContext
from mcp.shared.exceptions import MCPError

from schemas.errors import ErrorCode
from schemas.gateway.tokens import Role
from services.cli.failures import problem_of, sentence
from services.cli.mcp_server.budget import Budget
from services.cli.mcp_server.tool import Agent, Tool
from services.cli.mcp_server.tools import TOOLS
from shared.client.discovery import Address
from shared.client.http import StewardClient
from shared.errors import RefusedError, StewardError
from shared.local_platform.tokens import digest_of

INSTRUCTIONS: Final = (
    "GPU Steward reserves GPUs of a team and tunes LLM inference on them. Tools that change"
    " something only say what they would do until called with dry_run false. GPUs are held by"
    " reservations whose leases end: release what is not needed any more."
)
Context = ServerRequestContext[Any, Any]


class Budgets:
    """One for each token, for as long as this process runs."""

    def __init__(self, gpu_hours: float | None) -> None:
        self._gpu_hours = gpu_hours
        self._by_caller: dict[str, Budget] = {}

    def of(self, token: str | None) -> Budget | None:
        """Return the budget of a caller; None if none was set."""
        if self._gpu_hours is None:
            return None
        caller = digest_of(token) if token else ""
        return self._by_caller.setdefault(caller, Budget(self._gpu_hours))


def may_call(tool: Tool, role: Role, budget: Budget | None) -> bool:
    """A viewer's tools are everybody's; the others ask for a submitter, or more, and a budget."""
    return tool.role is Role.VIEWER or (role is not Role.VIEWER and budget is not None)


class ToolServer:
    """Serves callers by the address that `address_of` finds in a request's context."""

    def __init__(self, address_of: Callable[[Context], Address], budgets: Budgets) -> None:
        self._address_of, self._budgets = address_of, budgets
        self.server: Server[Any] = Server(
            "gpusteward",
            version=version("gpusteward"),
            instructions=INSTRUCTIONS,
            on_list_tools=self._list,
            on_call_tool=self._call,
        )

    async def _list(
        self, context: Context, _: mcp.PaginatedRequestParams | None
    ) -> mcp.ListToolsResult:
        try:
            async with self._agent(context) as (agent, role):
                offered = [tool for tool in TOOLS.values() if may_call(tool, role, agent.budget)]
        except StewardError as error:
            raise MCPError(mcp.INVALID_REQUEST, _text(error)) from error
        return mcp.ListToolsResult(tools=[_describe(tool) for tool in offered])

    async def _call(
        self, context: Context, params: mcp.CallToolRequestParams
    ) -> mcp.CallToolResult:
        try:
            tool = TOOLS.get(params.name)
            if tool is None:
                raise RefusedError(ErrorCode.NOT_FOUND, f"there is no tool {params.name!r}")
            arguments = _convert(params.arguments or {}, tool)
            async with self._agent(context) as (agent, role):
                if not may_call(tool, role, agent.budget):
                    raise RefusedError(
                        ErrorCode.FORBIDDEN,
                        f"{tool.name} asks for a submitter's token and a server with a budget"
                        f" (--gpu-hours), found a {role.value}'s"
                        + ("" if agent.budget is not None else " and no budget"),
                    )
                answer = await tool.run(agent, arguments)
        except StewardError as error:
            return mcp.CallToolResult(
                content=[mcp.TextContent(type="text", text=_text(error))], is_error=True
            )
        text = msgspec.json.encode(answer)
        return mcp.CallToolResult(
            content=[mcp.TextContent(type="text", text=text.decode())],
            structured_content=msgspec.json.decode(text),
        )

    @asynccontextmanager
    async def _agent(self, context: Context) -> AsyncIterator[tuple[Agent, Role]]:
        """A client for one request, and its role as it is now."""
        address = self._address_of(context)
        async with StewardClient(address) as client:
            me = await client.me()
            yield Agent(client, self._budgets.of(address.token)), me.role


def _text(error: StewardError) -> str:
    problem = problem_of(error)
    return f"{problem.code}: {sentence(problem)}"


def _convert(arguments: dict[str, Any], tool: Tool) -> Any:
    try:
        return msgspec.convert(arguments, tool.arguments)
    except msgspec.ValidationError as error:
        raise RefusedError(ErrorCode.BAD_REQUEST, f"{tool.name}: {error}") from error


def _describe(tool: Tool) -> mcp.Tool:
    return mcp.Tool(
        name=tool.name,
        description=" ".join(tool.description.split()),
        input_schema=tool.input_schema(),
        output_schema=tool.output_schema(),
        annotations=mcp.ToolAnnotations(
            read_only_hint=not tool.is_change,
            destructive_hint=tool.is_change,
            open_world_hint=False,
        ),
    )
