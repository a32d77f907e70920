"""An inference engine for containers: answers as the simulated engine does, to any engine's flags.

Runs in the image of `images.engine_image` under the names that engines have there: `vllm serve
MODEL`, `python3 -m sglang.launch_server`, `llama-server`, `engine`. Flags of the simulated engine
count, unknown ones do not; those that begin with `--stub-` make it misbehave.
They may also come from the environment, in `STUB_ENGINE`.
"""

import argparse
import asyncio
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Coroutine
from dataclasses import fields
from typing import Any, Final

from aiohttp import web

from shared.engines.simulated.flags import FLAGS
from shared.engines.simulated.ranks import (
    LOST_STATUS,
    Leader,
    Place,
    RankLost,
    follow,
)
from shared.engines.simulated.server import Behaviour, SimulatedEngine

ARGUMENTS_VARIABLE: Final = "STUB_ENGINE"
CHUNK_BYTES: Final = 16 << 20
LINE: Final = "line {:08d} " + "x" * 64


def main(argv: list[str] | None = None) -> int:
    """Serve until SIGTERM, or misbehave as asked."""
    given = sys.argv[1:] if argv is None else argv
    given = [*given, *shlex.split(os.environ.get(ARGUMENTS_VARIABLE, ""))]
    options, ignored = _parser().parse_known_args(given)
    name = options.name or options.model or _first_positional(ignored) or "simulated"
    _say(f"stub engine serves {name}; ignored: {ignored}")
    if options.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _misbehave(options)
    place = None
    if options.nnodes > 1:
        place = Place.parse(options.node_rank, options.nnodes, options.dist_init_addr)
        if place.rank:
            asyncio.run(_together(follow(place)))
    web.run_app(
        _app(_behaviour(options, name), given, place),
        host=options.host,
        port=options.port,
        print=_say,
        access_log=None,
        shutdown_timeout=0.1,
        handler_cancellation=True,
        handle_signals=not options.ignore_sigterm,
    )
    return 0


async def _app(behaviour: Behaviour, argv: list[str], place: Place | None) -> web.Application:
    """The simulated engine, and `/stub`: what this process was given. With a place it leads."""
    leader = Leader(place) if place is not None else None

    async def given(_: web.Request) -> web.Response:
        return web.json_response({"argv": argv, "environ": dict(os.environ), "pid": os.getpid()})

    async def lead(app: web.Application) -> None:
        if leader is not None:
            app["leading"] = asyncio.create_task(_together(leader.lead()))

    app = SimulatedEngine(behaviour, leader).app()
    app.router.add_get("/stub", given)
    app.on_startup.append(lead)
    return app


async def _together(rank: Coroutine[Any, Any, None]) -> None:
    """End the process when another rank is lost."""
    try:
        await rank
    except RankLost as error:
        _say(str(error))
        os._exit(LOST_STATUS)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--host", default="0.0.0.0")  # noqa: S104  # of the container alone
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--model", "--model-path", "-m")
    parser.add_argument("--alias", "--served-model-name", "-a", dest="name")
    for flag in FLAGS:
        flag.add_to(parser)
    parser.add_argument("--nnodes", type=int, default=1)
    parser.add_argument("--node-rank", type=int, default=0)
    parser.add_argument("--dist-init-addr", default="")
    parser.add_argument("--stub-lines", type=int, default=0, help="lines to print first")
    parser.add_argument("--stub-print", help="what to write to standard error next")
    parser.add_argument("--stub-hang", action="store_true", help="never listen")
    parser.add_argument("--stub-allocate", action="store_true", help="take memory until killed")
    parser.add_argument("--stub-exit-after", type=float, help="seconds")
    parser.add_argument("--stub-exit-code", type=int, default=1)
    return parser


def _misbehave(options: argparse.Namespace) -> None:
    for number in range(options.stub_lines):
        sys.stdout.write(LINE.format(number) + "\n")
    sys.stdout.flush()
    if options.stub_print is not None:
        sys.stderr.write(f"{options.stub_print}\n")
    if options.stub_exit_after is not None:
        end = threading.Timer(options.stub_exit_after, os._exit, [options.stub_exit_code])
        end.daemon = True
        end.start()
    if options.stub_allocate:
        threading.Thread(target=_allocate, daemon=True).start()
    while options.stub_hang:
        time.sleep(3600)


def _allocate() -> None:
    taken = []
    while True:
        taken.append(b"x" * CHUNK_BYTES)
        time.sleep(0.01)


def _behaviour(options: argparse.Namespace, name: str) -> Behaviour:
    known = {field.name for field in fields(Behaviour)}
    given: dict[str, Any] = {key: value for key, value in vars(options).items() if key in known}
    wanted = {key: value for key, value in given.items() if value is not None}
    return Behaviour(**{**wanted, "model": name})


def _first_positional(arguments: list[str]) -> str | None:
    """`vllm serve MODEL`: a subcommand, then the model."""
    words = [word for word in arguments if not word.startswith("-")]
    return next((word for word in words if word != "serve"), None)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
