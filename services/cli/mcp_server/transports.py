"""How agents reach the tools: standard input and output, or HTTP on this machine."""

from dataclasses import replace

import uvicorn
from mcp.server.stdio import stdio_server

from services.cli.mcp_server.server import Budgets, Context, ToolServer
from shared.client.discovery import Address
from shared.host_header import LOOPBACK


async def serve_stdio(address: Address, budgets: Budgets) -> None:
    """Serve until standard input ends."""
    tools = ToolServer(lambda _: address, budgets)
    async with stdio_server() as (read_stream, write_stream):
        options = tools.server.create_initialization_options()
        await tools.server.run(read_stream, write_stream, options)


async def serve_http(address: Address, budgets: Budgets, port: int) -> None:
    """Serve `/mcp` until cancelled; each request acts at `address` by the token that it carries."""

    def address_of(context: Context) -> Address:
        header = context.request.headers.get("authorization", "") if context.request else ""
        scheme, _, token = header.partition(" ")
        return replace(address, token=token.strip() if scheme.lower() == "bearer" else None)

    tools = ToolServer(address_of, budgets)
    # Without sessions: whose token came first would say nothing of whose comes next.
    application = tools.server.streamable_http_app(
        stateless_http=True, json_response=True, host=LOOPBACK
    )
    config = uvicorn.Config(
        application,
        host=LOOPBACK,
        port=port,
        log_config=None,
        access_log=False,
        server_header=False,
    )
    await uvicorn.Server(config).serve()
