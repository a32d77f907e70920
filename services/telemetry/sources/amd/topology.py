"""How AMD's GPUs are connected, as `amd-smi topology --json` and `rocm-smi --showtopo --json` say.

Both distinguish xGMI links from the PCIe bus, which adds nothing to NUMA nodes, a fact of each GPU.
amd-smi lists the `links` of each GPU, and before ROCm 6.1.1 `link_type` by the other's name
(CHANGELOG of amdsmi); rocm-smi has sentences with the numbers of two cards under `system`, one way
only.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from schemas.telemetry.readings import GpuLink, LinkKind
from services.telemetry.sources.amd.amd_smi import LISTS
from services.telemetry.sources.amd.values import at, count, entries, text

ROCM_ARGUMENTS: Final = ("--showtopo", "--json")
_XGMI: Final = "XGMI"
_LINK_TYPE = re.compile(r"\(topology\) link type between drm devices (\d+) and (\d+)")
_CARD = re.compile(r"card(\d+)")


def amd_smi_links(document: Any, uuids: Mapping[int, str]) -> tuple[GpuLink, ...]:
    """Return each pair of GPUs with xGMI between them; a disabled link is left out."""
    pairs = []
    for entry in entries(document, *LISTS):
        index, links = count(entry.get("gpu")), entry.get("links")
        for link in links if isinstance(links, list) else _older_links(entry):
            if not isinstance(link, Mapping) or text(link.get("link_type")) != _XGMI:
                continue
            if text(link.get("link_status")) != "DISABLED":
                pairs.append((index, count(link.get("gpu"))))
    return _links(pairs, uuids)


def _older_links(entry: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    kinds, states = entry.get("link_type"), entry.get("link_accessibility")
    for name, kind in kinds.items() if isinstance(kinds, Mapping) else ():
        state = states.get(name) if isinstance(states, Mapping) else None
        yield {"gpu": name.removeprefix("gpu_"), "link_type": kind, "link_status": state}


def rocm_smi_links(document: Any, uuids: Mapping[int, str]) -> tuple[GpuLink, ...]:
    """Return each pair of cards with xGMI between them."""
    system = document.get("system") if isinstance(document, Mapping) else None
    pairs = [
        (int(match[1]), int(match[2]))
        for name, kind in (system.items() if isinstance(system, Mapping) else ())
        if (match := _LINK_TYPE.match(name.lower())) is not None and text(kind) == _XGMI
    ]
    return _links(pairs, uuids)


def rocm_smi_numa_nodes(document: Any) -> dict[int, int]:
    """Return the NUMA node of each card by its number."""
    nodes: dict[int, int] = {}
    for name, card in document.items() if isinstance(document, Mapping) else ():
        if (match := _CARD.fullmatch(name)) is None or not isinstance(card, Mapping):
            continue
        node = count(
            at({key.lower(): value for key, value in card.items()}, "(topology) numa node")
        )
        if node is not None:
            nodes[int(match[1])] = node
    return nodes


def _links(
    pairs: Iterable[tuple[int | None, int | None]], uuids: Mapping[int, str]
) -> tuple[GpuLink, ...]:
    known_pairs = {
        (min(first, second), max(first, second))
        for first, second in pairs
        if first is not None and second is not None and first != second
    }
    return tuple(
        GpuLink(first_uuid=uuids[first], second_uuid=uuids[second], kind=LinkKind.NVLINK)
        for first, second in sorted(known_pairs)
        if first in uuids and second in uuids
    )
