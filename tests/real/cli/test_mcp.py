"""`gpusteward mcp` by a real MCP client, at a real gateway that asks for tokens.

As a process where the transport or its options count, else in this one.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from schemas.gateway.tokens import Role
from services.cli.mcp_server.tools import TOOLS
from shared.client.discovery import Address
from shared.local_platform.tokens import digest_of
from shared.testing import eventually
from tests.support.paths import ROOT
from tests.support.ports import free_port, is_open
from tests.support.worlds.gateway import Api, gateway

if TYPE_CHECKING:
    # Takes a second to import, in every process that collects tests.
    from mcp import Client, StdioServerParameters
    from mcp.client import Transport
    from mcp.server import Server
    from mcp_types import CallToolResult

pytestmark = pytest.mark.timeout(180)  # processes that start, on whatever machine
TOKENS = {"viewers": "viewer", "submitters": "submitter"}


@pytest.fixture
async def api(nats_url: str, postgres_dsn: str, tmp_path: Path) -> AsyncIterator[Api]:
    path = tmp_path / "tokens.json"
    known = [{"token_sha256": digest_of(name), "role": role} for name, role in TOKENS.items()]
    path.write_text(json.dumps(known))
    async with gateway(nats_url, postgres_dsn, tokens_file=str(path)) as running:
        yield running


def connected(server: "Server[Any] | StdioServerParameters | Transport | str") -> "Client":
    from mcp import Client

    return Client(server)


def in_process(api: Api, token: str) -> "Server[Any]":
    from services.cli.mcp_server.server import Budgets, ToolServer

    address = Address(api.url, token, is_supervised=False)
    return ToolServer(lambda _: address, Budgets(1.0)).server


def by_stdio(api: Api, token: str) -> "StdioServerParameters":
    from mcp import StdioServerParameters

    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "services.cli", "mcp"],
        env={**os.environ, "GPUSTEWARD_URL": api.url, "GPUSTEWARD_TOKEN": token},
        cwd=ROOT,
    )


def said(result: "CallToolResult") -> str:
    from mcp_types import TextContent

    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


@pytest.mark.long
async def test_viewer_agent_gets_only_reading_tools(api: Api) -> None:
    async with connected(in_process(api, "viewers")) as client:
        offered = {tool.name for tool in (await client.list_tools()).tools}
        read = await client.call_tool("list_gpus", {})
        refused = {
            name: await client.call_tool(name, _taken(name))
            for name in sorted(TOOLS.keys() - offered)
        }

    assert offered == {name for name, tool in TOOLS.items() if tool.role is Role.VIEWER}
    assert not read.is_error
    assert read.structured_content is not None
    assert len(refused) == 6
    for name, result in refused.items():
        assert (result.is_error, said(result).split(":")[0]) == (True, "forbidden"), name


@pytest.mark.long
async def test_submitter_agent_without_budget_only_reads(api: Api) -> None:
    async with connected(by_stdio(api, "submitters")) as client:
        offered = {tool.name for tool in (await client.list_tools()).tools}
        refused = await client.call_tool("reserve_gpus", {})

    assert "reserve_gpus" not in offered
    assert "no budget" in said(refused)


async def test_what_an_agent_gets_wrong_is_said_to_it(api: Api) -> None:
    async with connected(in_process(api, "submitters")) as client:
        misspelt = await client.call_tool("list_gpus", {"node": "alpha"})
        unknown = await client.call_tool("reserve", {})
        too_much = await client.call_tool("reserve_gpus", {"request": {"gpus": 7}})
    async with connected(in_process(api, "nobodys")) as client:
        stranger = await client.call_tool("list_gpus", {})

    assert "unknown field `node`" in said(misspelt)
    assert "there is no tool 'reserve'" in said(unknown)
    assert "expected at most 1 GPU-hours" in said(too_much)
    assert said(stranger).startswith("unauthenticated")


@pytest.mark.long
async def test_http_requests_act_by_their_own_token(api: Api) -> None:
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.cli", "mcp", "--http", "--port", str(port)),
        *("--gpu-hours", "1"),
        env={**os.environ, "GPUSTEWARD_URL": api.url, "GPUSTEWARD_TOKEN": "submitters"},
        cwd=ROOT,
        stderr=asyncio.subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}/mcp"

    async def offered(token: str) -> set[str]:
        async with (
            create_mcp_http_client(headers={"Authorization": f"Bearer {token}"}) as http,
            connected(streamable_http_client(url, http_client=http)) as client,
        ):
            return {tool.name for tool in (await client.list_tools()).tools}

    try:
        await eventually(lambda: is_open(port), within_seconds=60, what="an open port")
        viewers, submitters = await offered("viewers"), await offered("submitters")
        async with connected(url) as client:
            without = await client.call_tool("list_gpus", {})
        foreign = {"Host": "evil.example", "Accept": "application/json, text/event-stream"}
        async with api.session.post(url, json={}, headers=foreign) as response:
            foreign_status = response.status
    finally:
        process.terminate()
        await process.wait()

    assert submitters == set(TOOLS)
    assert viewers < submitters
    assert said(without).startswith("unauthenticated")  # not by the server's own environment
    assert foreign_status == 421


def _taken(name: str) -> dict[str, object]:
    """The least that a tool takes."""
    nothing = {"task": {}, "epoch": 1}
    needed = TOOLS[name].input_schema().get("required", [])
    return {each: nothing.get(each, str(UUID(int=1))) for each in needed}
