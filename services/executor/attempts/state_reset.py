"""Has a running engine forget what it was asked, so that the next run finds it as a fresh one."""

from pathlib import Path
from typing import Final

from msgspec import Struct, json

from shared.benchmarks.builtin.prefix_cache import reset_cache
from shared.benchmarks.chat_server import ChatServer
from shared.benchmarks.tools.adapter import ServerUnreachable
from shared.engines.table import PROFILES
from shared.errors import StewardError

SLOT: Final = "{id}"


class StateNotReset(StewardError):
    """The engine may still remember what it was asked; the text says why."""


class _Listed(Struct):
    id: int


async def reset_state(engine: str, base_url: str, certificate: Path | None = None) -> str:
    """Reset the engine's state, see that it answers, and return how it was reset.

    Raises StateNotReset.
    """
    profile = PROFILES.get(engine.lower())
    reset = profile.state_reset if profile is not None else None
    if reset is None:
        raise StateNotReset(f"no reset of its state is known of {engine}")
    async with ChatServer(base_url=base_url, model_name="", certificate=certificate) as server:
        paths = [reset.path]
        if reset.list_path:
            paths = [
                reset.path.replace(SLOT, str(listed))
                for listed in _ids(await server.metrics_page(reset.list_path), reset.list_path)
            ]
        for path in paths:
            if not await reset_cache(server, path):
                needs = f", which needs {reset.needs_variable}=1" if reset.needs_variable else ""
                raise StateNotReset(f"it did not confirm POST {path}{needs}")
        try:
            await server.check_health()
        except ServerUnreachable as error:
            raise StateNotReset(f"it is not healthy after the reset: {error}") from error
    return f"POST {reset.path} was confirmed and it answered a health request"


def _ids(page: str | None, path: str) -> list[int]:
    try:
        listed = json.decode(page or "", type=list[_Listed])
    except ValueError as error:
        raise StateNotReset(f"it does not list what to reset at {path}") from error
    if not listed:
        raise StateNotReset(f"it lists nothing to reset at {path}")
    return [entry.id for entry in listed]
