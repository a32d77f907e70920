"""Imported first in a service's process: libraries come without what they import just in case.

nats-py imports aiohttp for WebSockets alone, FastStream uvicorn to serve ASGI itself, structlog
rich for coloured tracebacks: together 14 MiB of a service's 65 (docs/explanation/performance.md).
"""

import os
from typing import Final

from shared.optional_imports import import_without

OPTIONAL: Final = {"nats.aio.transport": "aiohttp", "faststream": "uvicorn", "structlog": "rich"}

_nats_url = os.environ.get("GPUSTEWARD_NATS_URL", "").lstrip()
for _library, _optional in OPTIONAL.items():
    if _optional != "aiohttp" or not _nats_url.startswith("ws"):
        import_without(_library, _optional)
