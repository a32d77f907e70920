"""Remembers vanished pods over a restart: the API knows nothing of them."""

from pathlib import Path
from typing import Final

import msgspec

from services.cluster.domain.vanished_pods import Vanished, VanishedPods
from shared.logging import log
from shared.paths import make_directory, write_atomically

NAME: Final = "vanished-pods.json"


def load_vanished(path: Path, pods: VanishedPods) -> None:
    """Take up what an earlier life has seen vanish. What cannot be read is told in the log."""
    try:
        pods.add(msgspec.json.decode(path.read_bytes(), type=list[Vanished]))
    except FileNotFoundError:
        return
    except (OSError, msgspec.DecodeError) as error:
        log.error("vanished_pods_unread", path=str(path), error=str(error))
    pods.is_changed = False


def save_vanished(path: Path, pods: VanishedPods) -> None:
    """Write them, if they have changed since the last time."""
    if not pods.is_changed:
        return
    try:
        make_directory(path.parent, 0o700)
        write_atomically(path, msgspec.json.encode(pods.all), is_durable=True)
        pods.is_changed = False
    except OSError as error:  # tried again with the next change
        log.error("vanished_pods_unsaved", path=str(path), error=str(error))
