"""The command that serves agents."""

import os
from dataclasses import replace
from typing import Final

import click

from services.cli.options import Target, with_target
from shared.client.discovery import TOKEN_VARIABLE, Address

DEFAULT_PORT: Final = 8471


@click.command()
@click.option("--http", "over_http", is_flag=True, help="Serve HTTP on 127.0.0.1, at /mcp.")
@click.option(
    "--port",
    type=click.IntRange(min=1, max=65_535),
    default=DEFAULT_PORT,
    show_default=True,
    help="With --http.",
)
@click.option(
    "--gpu-hours",
    type=click.FloatRange(min=0, min_open=True),
    help="Let agents change things: each token may commit so many GPU-hours while this runs.",
)
@with_target
def mcp(target: Target, over_http: bool, port: int, gpu_hours: float | None) -> None:
    """Serve agents by the Model Context Protocol, on standard input and output.

    Agents act by the token given by --token or GPUSTEWARD_TOKEN, never by the administrator's of
    the data directory; over HTTP each request by the token that it carries. Without --gpu-hours, or
    with a viewer's token, there are only tools that read.
    """
    if over_http and target.token:
        raise click.UsageError("with --http each request carries its token; leave out --token")
    from services.cli import interruption
    from services.cli.mcp_server.server import Budgets
    from services.cli.mcp_server.transports import serve_http, serve_stdio

    place = target.address()
    address = Address(place.url, ca=place.ca)
    budgets = Budgets(gpu_hours)
    if over_http:
        click.echo(f"agents are served at http://127.0.0.1:{port}/mcp", err=True)
        interruption.run(serve_http(address, budgets, port))
    else:
        token = target.token or os.environ.get(TOKEN_VARIABLE) or None
        interruption.run(serve_stdio(replace(address, token=token), budgets))
