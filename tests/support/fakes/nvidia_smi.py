"""A program in place of nvidia-smi: it answers the queries that a table has columns for."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

GPU: Final[Mapping[str, str]] = {
    "index": "0",
    "uuid": "GPU-aaaa",
    "name": "NVIDIA H100 80GB HBM3",
    "utilization.gpu": "37",
    "memory.total": "81559",
    "memory.used": "1024",
    "memory.free": "80035",
    "temperature.gpu": "61",
    "power.draw": "412.37",
    "enforced.power.limit": "700.00",
    "clocks.sm": "1980",
    "clocks.mem": "2619",
    "clocks_throttle_reasons.active": "0x0000000000000044",
    "ecc.errors.corrected.volatile.total": "2",
    "ecc.errors.uncorrected.volatile.total": "0",
    "pci.bus_id": "00000000:18:00.0",
    "serial": "1652223001234",
    "compute_cap": "9.0",
    "mig.mode.current": "Disabled",
    "driver_version": "550.54.15",
    "pstate": "P0",
    "fan.speed": "[N/A]",
    "utilization.memory": "21",
    "utilization.encoder": "0",
    "utilization.decoder": "3",
    "pcie.link.gen.current": "5",
    "pcie.link.width.current": "16",
    "pcie.link.gen.max": "5",
    "pcie.link.width.max": "16",
    "retired_pages.sbe": "1",
    "retired_pages.dbe": "2",
    "retired_pages.pending": "No",
    "remapped_rows.correctable": "0",
    "remapped_rows.uncorrectable": "1",
    "remapped_rows.pending": "No",
    "remapped_rows.failure": "No",
    "power.default_limit": "700.00",
    "power.min_limit": "200.00",
    "power.max_limit": "700.00",
}

# A row whose uuid begins with `!` is a device that was lost: the program complains and gives up.
_ANSWER: Final = r"""
case "$1" in
--version) printf 'NVIDIA-SMI version  : 550.54.15\nCUDA Version        : 12.4\n'; exit 0 ;;
--query-compute-apps=*) cat "$here/processes"; exit "$listed" ;;
topo) cat "$here/topology"; exit 0 ;;
--query-supported-clocks=graphics) printf '1980\n1200\n345\n1755\n'; exit 0 ;;
--id=*) echo 'All done.'; exit 0 ;;
--query-gpu=*) ;;
*) echo 'Invalid combination of input arguments.'; exit 1 ;;
esac
awk -F '\t' -v query="${1#--query-gpu=}" -v only="$3" '
NR == 1 {
  for (place = 1; place <= NF; place++) column[$place] = place
  wanted = split(query, field, ",")
  for (place = 1; place <= wanted; place++) if (!(field[place] in column)) {
    printf "Field \"%s\" is not a valid field to query.\n\n", field[place]; exit 2
  }
  next
}
only != "" && index(only, $column["uuid"]) == 0 { next }
("lost" in column) && $column["lost"] != "" { print $column["lost"]; exit 15 }
substr($column["uuid"], 1, 1) == "!" {
  printf "Unable to determine the device handle for GPU%s: ", $1
  printf "%s: GPU is lost.  ", $column["pci.bus_id"]
  print "Reboot the system to recover this GPU"; exit 15
}
{
  line = $column[field[1]]
  for (place = 2; place <= wanted; place++) line = line ", " $column[field[place]]
  print line
}' "$here/gpus"
code=$?
cat "$here/tail"
[ "$code" -ne 0 ] || code=$ended
exit "$code"
"""


def make_gpu(index: int = 0, uuid: str = "GPU-aaaa", **changed: str) -> dict[str, str]:
    """A row; `__` in a keyword is a dot."""
    return {
        **GPU,
        "index": str(index),
        "uuid": uuid,
        "pci.bus_id": f"00000000:{index + 24:02X}:00.0",
        **{name.replace("__", "."): value for name, value in changed.items()},
    }


class FakeSmi:
    """The program; what it prints changes with the next run."""

    def __init__(self, directory: Path) -> None:
        self.path = str(directory / "nvidia-smi")
        self._directory = directory
        self.connect("")
        self.answer([make_gpu()])

    def connect(self, table: str) -> None:
        """Print this for `topo -m`."""
        self._write("topology", table)

    def answer(
        self,
        gpus: list[dict[str, str]],
        *,
        processes: str = "",
        before: str = "",
        exit_code: int = 0,
        tail: str = "",
        ends_with: int = 0,
    ) -> None:
        """Know these GPUs, by the columns of the first; run `before` first, in shell. The list of
        processes ends with `exit_code`. A row with a column `lost` is that complaint. `tail` comes
        after the rows, and the program ends with `ends_with`.
        """
        columns = list(gpus[0])
        rows = [columns, *([gpu[name] for name in columns] for gpu in gpus)]
        self._write("gpus", "".join("\t".join(row) + "\n" for row in rows))
        self._write("processes", processes)
        self._write("tail", tail)
        variables = f"here={self._directory}\nlisted={exit_code}\nended={ends_with}"
        self.behave(f"{variables}\n{before}\n{_ANSWER}")

    def behave(self, body: str) -> None:
        """Be this shell script."""
        self._write("nvidia-smi", f"#!/bin/sh\n{body}\n")

    def _write(self, name: str, content: str) -> None:
        """Replaced as a whole, as the program may be running."""
        temporary = self._directory / f".{name}.new"
        temporary.write_text(content)
        temporary.chmod(0o755)
        temporary.rename(self._directory / name)
