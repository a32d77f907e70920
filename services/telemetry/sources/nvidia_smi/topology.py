"""Parses `nvidia-smi topo -m`: how GPUs are connected, and their NUMA nodes.

A table with tabs: a row and a column for each GPU and network card, then the affinities; its legend
explains the words (`nvidia-smi topo --help`). GPUs are named by their index.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Final

from msgspec import Struct

from schemas.telemetry.readings import GpuLink, LinkKind
from services.telemetry.domain.tool_values import count

ARGUMENTS: Final = ("topo", "-m")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_NVLINKS = re.compile(r"NV(\d+)")
_NUMA: Final = "NUMA Affinity"
_KINDS: Final = {
    kind.value.upper(): kind
    for kind in (LinkKind.PIX, LinkKind.PXB, LinkKind.PHB, LinkKind.NODE, LinkKind.SYS)
}


class SmiTopology(Struct, frozen=True, kw_only=True):
    """Each pair once; NUMA nodes by uuid. What the table does not say is missing."""

    links: tuple[GpuLink, ...] = ()
    numa_nodes: dict[str, int] = {}


def parse_topology(output: str, uuids: Mapping[int, str]) -> SmiTopology:
    """Parse links by the uuids of GPUs by index; a GPU without a uuid there is left out."""
    rows = [
        [cell.strip() for cell in _COLOURS.sub("", line).split("\t")]
        for line in output.splitlines()
    ]
    header = next((row for row in rows if not row[0] and any(row)), [])
    table = {row[0]: dict(zip(header[1:], row[1:], strict=False)) for row in rows if row[0]}
    names = {f"GPU{index}": uuid for index, uuid in sorted(uuids.items())}
    return SmiTopology(
        links=tuple(_links(table, names)),
        numa_nodes={
            uuid: node
            for name, uuid in names.items()
            if (node := count(table.get(name, {}).get(_NUMA, ""))) is not None
        },
    )


def _links(table: Mapping[str, Mapping[str, str]], names: Mapping[str, str]) -> Iterator[GpuLink]:
    for first, second in combinations(names, 2):
        word = table.get(first, {}).get(second, "")
        nvlinks = _NVLINKS.fullmatch(word)
        kind = LinkKind.NVLINK if nvlinks is not None else _KINDS.get(word)
        if kind is not None:
            yield GpuLink(
                first_uuid=names[first],
                second_uuid=names[second],
                kind=kind,
                nvlinks=int(nvlinks[1]) if nvlinks is not None else 0,
            )
