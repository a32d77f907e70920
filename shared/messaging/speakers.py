"""Whether who speaks may change something."""

from collections.abc import Collection

from schemas.base import PLATFORM, node_speaker
from schemas.errors import ErrorCode
from shared.errors import RefusedError


def require_speaker(speaker: str, namespace: str, node_ids: Collection[str] = ()) -> None:
    """Raises RefusedError unless what is of this namespace, and runs there, is the speaker's."""
    if speaker not in {PLATFORM, namespace, *map(node_speaker, node_ids)}:
        raise RefusedError(
            ErrorCode.FORBIDDEN, f"this does not belong to {speaker}", path="$.speaker"
        )
