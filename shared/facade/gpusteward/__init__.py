"""The Python interface of GPU Steward: `import gpusteward`.

`StewardClient` has a method for everything that the HTTP API can do. The functions here wait for
their answer; `gpusteward.aio` has the same ones for asyncio, `gpusteward.types` the types of
requests and answers. Names are resolved on first use, so that the import costs no HTTP library.
"""

from typing import TYPE_CHECKING, Any

import shared.client

if TYPE_CHECKING:
    from shared.client import *  # noqa: F403  # what `shared.client.__all__` names

    __version__: str

__all__ = ["__version__"]
__all__ += shared.client.__all__


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib import metadata

        return metadata.version("gpusteward")
    if name in shared.client.__all__:
        return getattr(shared.client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
