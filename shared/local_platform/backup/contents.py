"""What of a data directory belongs into a backup beside the database, and where it goes back to.

Left out is what a node keeps of its own: the executor's journal and logs of engines, power limits.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from shared.local_platform.backup.archive import FILES, SETTINGS_FILES, RanSettings
from shared.local_platform.secrets_key import split_keys
from shared.local_platform.supervisor.supervisor import ChildState
from shared.local_platform.tokens import tokens_path
from shared.paths import DataDirectory
from shared.processes.environment import variables_of

INSTALLATION: Final = "installation_id"
TOKENS: Final = "tokens.json"
SECRETS_KEY: Final = "secrets.key"
MAX_SETTINGS_FILE_BYTES: Final = 1 << 20
_OURS: Final = ("GPUSTEWARD_", "HF_")  # variables that services and engines read


def read_settings(pid: int) -> tuple[RanSettings, dict[str, bytes]]:
    """Return how the platform of this process was started, and the files named there, by part.

    Empty where another user's process does not let its environment be read.
    """
    pairs = (text.decode(errors="replace").partition("=") for text in variables_of(pid))
    variables = {name: value for name, _, value in pairs if name.startswith(_OURS)}
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode().split("\0")
    except (OSError, UnicodeDecodeError):
        words = []
    arguments = _arguments_of(words)
    file_values = [value for name, value in variables.items() if name.endswith("_FILE")]
    contents: dict[str, bytes] = {}
    files: dict[str, str] = {}
    for path in _files_among([*file_values, *arguments]):
        part = f"{SETTINGS_FILES}{len(files) + 1}-{path.name}"
        try:
            contents[part] = path.read_bytes()
        except OSError:
            continue
        files[part] = str(path)
    return RanSettings(arguments=arguments, variables=variables, files=files), contents


def has_embedded_postgres(directory: DataDirectory) -> bool:
    """Return whether the platform that runs here brought its database along."""
    try:
        children = msgspec.json.decode(directory.state_path.read_bytes(), type=list[ChildState])
    except (OSError, msgspec.DecodeError):
        return False
    return any(child.name == "postgres" for child in children)


def read_files(directory: DataDirectory, variables: Mapping[str, str]) -> dict[str, bytes]:
    """Return the files that a platform needs to be the same one, by their part of the archive."""
    directory.installation_id()
    paths = {
        INSTALLATION: directory.root / INSTALLATION,
        "admin_token": directory.admin_token_path,
        SECRETS_KEY: directory.secrets_key_path,
        TOKENS: tokens_path(directory, variables),
        "nats/port": directory.nats / "port",
        # Without them no client would trust the platform that is made of a backup.
        "tls/ca.pem": directory.authority_path,
        "tls/ca.key": directory.tls / "ca.key",
        **{f"nats/users/{path.name}": path for path in _users(directory)},
    }
    return {f"{FILES}{name}": path.read_bytes() for name, path in paths.items() if path.is_file()}


def read_keys(directory: DataDirectory) -> list[str]:
    """Return the keys that seal secrets; none of a platform that has made none, or whose are not
    here.
    """
    try:
        return split_keys(directory.secrets_key_path.read_text())
    except FileNotFoundError:
        return []


def _users(directory: DataDirectory) -> Iterator[Path]:
    yield from sorted((directory.nats / "users").glob("*.json"))


def _arguments_of(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words from `up` on: what is before them is how Python was started."""
    return tuple(words[words.index("up") :]) if "up" in words else ()


def _files_among(words: Sequence[str]) -> list[Path]:
    paths = dict.fromkeys(Path(word.rpartition("=")[2]) for word in words if os.sep in word)
    return [
        path for path in paths if path.is_file() and path.stat().st_size <= MAX_SETTINGS_FILE_BYTES
    ]
