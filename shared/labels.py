"""The labels by which everything that runs under a reservation is found again.

Processes carry them in their environment, which their descendants inherit; containers carry them
there and as labels of their own.
"""

from typing import Final
from uuid import UUID

RESERVATION_VARIABLE: Final = "GPUSTEWARD_RESERVATION"
INSTALLATION_VARIABLE: Final = "GPUSTEWARD_INSTALLATION"
NODE_VARIABLE: Final = "GPUSTEWARD_NODE"
EPOCH_VARIABLE: Final = "GPUSTEWARD_EPOCH"
EXPERIMENT_VARIABLE: Final = "GPUSTEWARD_EXPERIMENT"

RESERVATION_LABEL: Final = "gpusteward.reservation"
INSTALLATION_LABEL: Final = "gpusteward.installation"
NODE_LABEL: Final = "gpusteward.node"
EPOCH_LABEL: Final = "gpusteward.epoch"
EXPERIMENT_LABEL: Final = "gpusteward.experiment"
ATTEMPT_LABEL: Final = "gpusteward.attempt"
RUNTIME_LABEL: Final = "gpusteward.runtime"  # of objects in a cluster
RANK_LABEL: Final = "gpusteward.rank"  # of an engine's pods there, if they are several

EPOCH_DIGITS: Final = 18


def environment_of(
    reservation_id: UUID,
    *,
    node_id: str | None,
    epoch: int | None = None,
    installation_id: str | None = None,
    experiment_id: UUID | None = None,
) -> dict[str, str]:
    """The environment variables of what runs under the reservation; None leaves one out."""
    written = {
        RESERVATION_VARIABLE: reservation_id,
        INSTALLATION_VARIABLE: installation_id,
        NODE_VARIABLE: node_id,
        EPOCH_VARIABLE: epoch,
        EXPERIMENT_VARIABLE: experiment_id,
    }
    return {name: str(value) for name, value in written.items() if value is not None}


def parse_id(text: str | None) -> UUID | None:
    """The id as we write it; in any other spelling it is no label of ours, and is never found by
    one.
    """
    try:
        parsed = UUID(text or "")
    except ValueError:
        return None
    return parsed if str(parsed) == text else None


def parse_epoch(text: str | None) -> int | None:
    """Return the epoch; None for what no message can carry: any process may set it, and it must
    hide nothing.
    """
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > EPOCH_DIGITS:
        return None
    return int(text) or None
