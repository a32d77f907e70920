"""Imported first in a service's process: libraries come without what they import just in case.

nats-py imports aiohttp for WebSockets alone, FastStream uvicorn to serve ASGI itself, structlog
rich for coloured tracebacks: together 14 MiB of a service's 65 (docs/explanation/performance.md).
"""

import importlib
import os
import sys
from typing import Final

OPTIONAL: Final = {"nats.aio.transport": "aiohttp", "faststream": "uvicorn", "structlog": "rich"}


def _import_without(library: str, optional: str) -> None:
    """`optional` itself can be imported as ever afterwards."""
    if optional in sys.modules:
        return
    sys.modules[optional] = None  # type: ignore[assignment]  # what makes its import fail
    try:
        importlib.import_module(library)
    finally:
        del sys.modules[optional]


_nats_url = os.environ.get("GPUSTEWARD_NATS_URL", "").lstrip()
for _library, _optional in OPTIONAL.items():
    if _optional != "aiohttp" or not _nats_url.startswith("ws"):
        _import_without(_library, _optional)
