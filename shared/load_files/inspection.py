"""What an uploaded file holds, found by a process that is bounded.

`python -m shared.load_files.inspection NAME` reads the file that is its stdin; NAME tells the
format where the first bytes do not. What it holds is written to stdout as JSON; what is wrong with
it is the last line of stderr.
"""

import itertools
import resource
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from schemas.gateway.datasets import DatasetContents, DatasetKind
from schemas.task.dataset import DatasetFormat, DatasetSpec, DropReason
from shared.datasets.bounds import MEBIBYTE, DatasetRefused
from shared.datasets.pieces import decode, unpack
from shared.datasets.rows import column_names, read_rows
from shared.datasets.selection import refuse_row
from shared.datasets.texts import DROPPED
from shared.load_files.converter import MAX_MEMORY_BYTES, MAX_PROCESSOR_SECONDS, STDIN_PATH
from shared.load_files.inspector import STATUS_REFUSED
from shared.load_files.places import FetchedFile
from shared.traces.lines import read_lines

NO_COLUMN: Final = "columns.prompt"
_SPEC: Final = DatasetSpec(upload="file")


def read_contents(file: FetchedFile) -> DatasetContents:
    """Read a file to its end. Raises DatasetRefused."""
    texts = decode(unpack(file.read_chunks(column_names(_SPEC.columns))))
    try:
        first = next(texts, "")
    except DatasetRefused as error:
        return _say_no_column(error, DatasetFormat.PROMPTS)  # of Parquet
    source = itertools.chain([first], texts)
    return _read_trace(source) if _begins_trace(first) else _read_dataset(source, file.name)


def _say_no_column(error: DatasetRefused, read_as: DatasetFormat) -> DatasetContents:
    """Say of a file that its column of prompts is the task's to name; another error is raised."""
    if error.path is None or not error.path.endswith(NO_COLUMN):
        raise error
    return DatasetContents(
        kind=DatasetKind.DATASET,
        format=read_as,
        rows=0,
        text="rows whose column of prompts a task has to name by benchmark.dataset.columns: "
        + error.message,
    )


def _begins_trace(text: str) -> bool:
    try:
        value: Any = msgspec.json.decode(text.lstrip().partition("\n")[0])
    except (msgspec.DecodeError, RecursionError):
        return False
    return isinstance(value, dict) and {"input_length", "output_length"} <= value.keys()


def _read_trace(texts: Iterable[str]) -> DatasetContents:
    requests = input_tokens = output_tokens = 0
    first_ms: float | None = None
    last_ms: float = 0.0
    sessions: set[str | int] = set()
    # Blocks may be as small as a token: how large they are a task says.
    for line in read_lines(texts, 1):
        requests += 1
        input_tokens += line.input_length
        output_tokens += line.output_length
        if line.timestamp is not None:
            first_ms = line.timestamp if first_ms is None else first_ms
            last_ms = line.timestamp
        if line.session_id is not None:
            sessions.add(line.session_id)
    if not requests:
        raise DatasetRefused("expected a trace with requests, got none")
    mean_input, mean_output = input_tokens / requests, output_tokens / requests
    time_text = (
        f" over {(last_ms - first_ms) / 1000:,.0f} s" if first_ms is not None else ", without times"
    )
    session_text = f" in {len(sessions):,} sessions" if sessions else ""
    return DatasetContents(
        kind=DatasetKind.TRACE,
        rows=requests,
        mean_input_length=mean_input,
        mean_output_length=mean_output,
        text=f"a trace of {requests:,} requests{session_text}{time_text}; on average"
        f" {mean_input:,.0f} tokens in and {mean_output:,.0f} out",
    )


def _read_dataset(texts: Iterable[str], name: str) -> DatasetContents:
    reading = read_rows(texts, _SPEC, name)
    dropped: Counter[DropReason] = Counter()
    rows = input_words = output_words = answers = 0
    try:
        for row in reading.rows:
            rows += 1
            if (reason := refuse_row(row, _SPEC, set())) is not None:
                dropped[reason] += 1
                continue
            input_words += len(row.prompt.split())
            if row.answer:
                answers += 1
                output_words += len(row.answer.split())
    except DatasetRefused as error:
        return _say_no_column(error, reading.format)
    usable = rows - dropped.total()
    mean_input = input_words / usable if usable else 0.0
    mean_output = output_words / answers if answers else 0.0
    return DatasetContents(
        kind=DatasetKind.DATASET,
        format=reading.format,
        rows=rows,
        dropped=dict(dropped),
        mean_input_length=mean_input,
        mean_output_length=mean_output,
        text=_say_rows(reading.format, rows, dropped, mean_input, mean_output),
    )


def _say_rows(
    read_as: DatasetFormat,
    rows: int,
    dropped: Counter[DropReason],
    mean_input: float,
    mean_output: float,
) -> str:
    text = f"{rows:,} {'row' if rows == 1 else 'rows'} of {read_as.value}"
    if dropped:
        text += ", of them " + ", ".join(
            f"{count:,} {DROPPED[reason]}" for reason, count in dropped.items()
        )
    if dropped.total() == rows:
        return f"{text}; a task has to name the column of prompts by benchmark.dataset.columns"
    answers = f", answers {mean_output:,.0f}" if mean_output else ""
    return f"{text}; prompts have {mean_input:,.0f} words on average{answers}"


def main(arguments: Sequence[str]) -> int:
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_PROCESSOR_SECONDS, MAX_PROCESSOR_SECONDS))
    (name,) = arguments
    try:
        contents = read_contents(FetchedFile(Path(STDIN_PATH), name, ""))
    except DatasetRefused as error:
        reason = error.message
    except MemoryError:
        reason = f"it takes more than {MAX_MEMORY_BYTES // MEBIBYTE} MiB of memory to read"
    else:
        sys.stdout.buffer.write(msgspec.json.encode(contents))
        return 0
    sys.stderr.write("\n" + " ".join(reason.split())[:1000] + "\n")
    return STATUS_REFUSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
