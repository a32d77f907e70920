"""Reads datasets as an executor does, and says what memory that took.

`python -m tests.support.read_dataset PATH...` prints a JSON object: `answers`, for each file the
rows that were read or the refusal, and `peak_mb` and `children_peak_mb`.
"""

import json
import resource
import sys
from pathlib import Path

from schemas.task.dataset import DatasetSpec
from shared.datasets.bounds import DatasetRefused
from shared.datasets.pieces import decode, unpack
from shared.datasets.rows import column_names, read_rows
from shared.datasets.selection import draw_candidates
from shared.load_files.places import FetchedFile

SPEC = DatasetSpec(path="x", deduplicate=True, max_input_tokens=10)


def read(path: Path) -> int | str:
    file = FetchedFile(path, path.name, "")
    try:
        texts = decode(unpack(file.read_chunks(column_names(SPEC.columns))))
        return draw_candidates(read_rows(texts, SPEC, path.name).rows, SPEC).rows_read
    except DatasetRefused as error:
        return error.message


def main() -> None:
    answers = [read(Path(path)) for path in sys.argv[1:]]
    # What getrusage says of this process has in it what started it.
    status = Path("/proc/self/status").read_text()
    peaks = {
        "peak_mb": int(status.partition("VmHWM:")[2].split()[0]) / 1024,
        "children_peak_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
    }
    sys.stdout.write(json.dumps({"answers": answers, **peaks}))


if __name__ == "__main__":
    main()
