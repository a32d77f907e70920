"""Datasets and traces that people uploaded: what they hold, and how executors get them."""

from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta, Struct

from schemas.base import Count, ListView, Name, Namespace, Query, UtcDatetime, View
from schemas.task.dataset import DatasetFormat, DropReason
from schemas.task.source_file import Sha256

PIECE_BYTES: Final = 512 << 10  # of an answer on the bus


class DatasetKind(StrEnum):
    """What a file can be used as: `benchmark.dataset` or `benchmark.trace`."""

    DATASET = "dataset"
    TRACE = "trace"


class DatasetContents(Struct, frozen=True, kw_only=True):
    """What a file was found to hold: `format` is what it was read as, `rows` are prompts or a
    trace's requests, `dropped` those that no task can use. `text` says all of it to people.

    Lengths are in words of a dataset, as no engine has counted it yet, and in tokens of a trace.
    """

    kind: DatasetKind
    format: DatasetFormat = DatasetFormat.AUTO
    rows: Count
    dropped: dict[DropReason, int] = {}
    mean_input_length: float = 0.0
    mean_output_length: float = 0.0
    text: str


class DatasetView(View, frozen=True, kw_only=True, tag="gateway.dataset"):
    """An uploaded file by its name in a namespace. `used_by` are unfinished tasks that name it,
    where one file is asked for.
    """

    namespace: Namespace
    name: Name
    sha256: Sha256
    size_bytes: Count
    contents: DatasetContents
    added_by: str
    added_at: UtcDatetime
    used_by: tuple[str, ...] = ()


class DatasetList(ListView, frozen=True, kw_only=True, tag="gateway.dataset_list"):
    """Uploaded files by name. `max_bytes` is how large one may be, `used_bytes` what those of the
    namespace have together, and `quota_bytes` how much that may be.
    """

    datasets: tuple[DatasetView, ...]
    max_bytes: Count
    used_bytes: Count
    quota_bytes: Count


class GetDatasetPiece(Query, frozen=True, kw_only=True, tag="gateway.get_dataset_piece"):
    """Asks for a part of an uploaded file, for an executor. Answered by `DatasetPiece`."""

    sha256: Sha256
    number: Annotated[int, Meta(ge=0, le=1_000_000)]


class DatasetPiece(View, frozen=True, kw_only=True, tag="gateway.dataset_piece"):
    """A part of an uploaded file of `size_bytes`; all but the last have PIECE_BYTES."""

    content: bytes
    size_bytes: Count
