"""What a share is of a GPU where a fleet file says it, and how its amounts are shown.

The platform's own share is one GPU. A file of the mock-accelerator form may make a GPU more or less
than one of its shares, and names units; both are labels of its node, from where amounts are told in
the file's own terms.
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from schemas.base import Line

DEVICE_PLUGIN_LABEL: Final = "gpusteward.io/device-plugin"
SHARES_PER_GPU_LABEL: Final = "gpusteward.io/shares-per-gpu"  # one for all, or each by its index
SHARE_QUANTUM_LABEL: Final = "gpusteward.io/share-quantum"  # in the file's shares
FORMAT_LABEL: Final = "gpusteward.io/format."  # and the kind of slot: SlotFormat as JSON
SHARES: Final = "shares"
MAX_DIGITS: Final = 9


class NumberFormat(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`round_length` digits after the point; `binary` counts in 1024s, which no share does."""

    binary: bool = False
    round_length: Annotated[int, Meta(ge=0, le=MAX_DIGITS)] = 2


class SlotFormat(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How amounts of one kind of slot are shown to people."""

    human_readable_name: Line = ""
    description: Line = ""
    display_unit: Line = ""
    display_icon: Line = ""
    number_format: NumberFormat = NumberFormat()


def format_labels(formats: Mapping[str, SlotFormat]) -> dict[str, str]:
    """Return the labels that tell these formats, which `format_of` reads."""
    return {
        f"{FORMAT_LABEL}{kind}": msgspec.json.encode(slot_format).decode()
        for kind, slot_format in formats.items()
    }


def format_of(labels: Mapping[str, str], kind: str) -> SlotFormat | None:
    """Return the format of a kind of slot; None where a node tells none that can be read."""
    with contextlib.suppress(msgspec.DecodeError):
        return msgspec.json.decode(labels.get(f"{FORMAT_LABEL}{kind}", ""), type=SlotFormat)
    return None


def shares_label(amounts: Sequence[float]) -> str:
    """Return what SHARES_PER_GPU_LABEL says of GPUs in the order of their indices."""
    texts = [f"{amount:.2f}" for amount in amounts]
    return texts[0] if len(set(texts)) == 1 else ",".join(texts)


def shares_per_gpu(labels: Mapping[str, str], index: int) -> float:
    """Return how many shares the node's file makes of a GPU; 1.0 where it says nothing."""
    amounts = labels.get(SHARES_PER_GPU_LABEL, "").split(",")
    with contextlib.suppress(ValueError, IndexError):
        return float(amounts[0] if len(amounts) == 1 else amounts[index])
    return 1.0


def amount_text(gpus: float, labels: Mapping[str, str], index: int) -> tuple[str, str]:
    """Return an amount of a GPU in its node's shares, and their unit ("" where it has none)."""
    slot_format = format_of(labels, SHARES) or SlotFormat()
    amount = gpus * shares_per_gpu(labels, index)
    return f"{amount:.{slot_format.number_format.round_length}f}", slot_format.display_unit
