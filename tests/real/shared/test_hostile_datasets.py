"""Files that are made to harm who reads them: refused in words, in bounded memory."""

import gzip
import io
import json
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.support.paths import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]
MEBIBYTE = 2**20
MAX_OWN_MB = 400
MAX_CHILD_MB = 1500


def gzip_of(pieces: Iterable[bytes]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with gzip.open(path, "wb", compresslevel=1) as file:
            for piece in pieces:
                file.write(piece)

    return write


def zstandard_of(pieces: Iterable[bytes]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with pa.output_stream(str(path), compression="zstd") as file:
            for piece in pieces:
                file.write(piece)

    return write


def plain(content: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(content)

    return write


def zip_with_paths(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("../../etc/passwd", "root")
        file.writestr("bomb", bytes(64 * MEBIBYTE))


def tar_with_paths(path: Path) -> None:
    with tarfile.open(path, "w:gz") as file:
        member = tarfile.TarInfo("../../../etc/passwd")
        member.size = 4
        file.addfile(member, io.BytesIO(b"root"))


def parquet_bomb(path: Path) -> None:
    texts = pa.array(["x" * MEBIBYTE] * 1500, pa.large_string()).dictionary_encode()
    parquet.write_table(pa.table({"prompt": texts}), path)


def parquet_of_other_columns(path: Path) -> None:
    parquet.write_table(pa.table({"embedding": [1.0, 2.0]}), path)


def cut_parquet(path: Path) -> None:
    parquet.write_table(pa.table({"prompt": ["a b"] * 1000}), path)
    path.write_bytes(path.read_bytes()[:-200])


def cut_gzip(path: Path) -> None:
    path.write_bytes(gzip.compress(b"one two\n" * 10_000)[:-20])


HOSTILE: dict[str, tuple[Callable[[Path], None], str]] = {
    "one-line.gz": (gzip_of([b"a" * MEBIBYTE] * 300), "at most 4 million characters"),
    "blanks.gz": (gzip_of([b" " * MEBIBYTE] * 100), "begins with blanks"),
    "ten-million-lines.gz": (gzip_of([b"a b\n" * 10_000] * 1000), "at most 2,000,000 rows"),
    "large-array.gz": (gzip_of([b'["a",', b'"b",' * 3_000_000]), "at most 2,000,000 rows"),
    "twice.gz": (plain(gzip.compress(gzip.compress(b"one two\n"))), "UTF-8"),
    "cut.gz": (cut_gzip, "cut off"),
    "deep.jsonl": (plain(b"[" * 200_000), "nested too deep"),
    "nul.txt": (plain(b"one\x00two\n"), "a NUL byte at byte 3"),
    "utf-16.txt": (plain("one two\n".encode("utf-16")), "UTF-16"),
    "latin.txt": (plain(b"na\xefve words\n"), "UTF-8"),
    "archive.zip": (zip_with_paths, "a ZIP archive"),
    "archive.tar.gz": (tar_with_paths, "a NUL byte"),
    "bomb.zst": (zstandard_of([b"a" * MEBIBYTE] * 300), "at most 4 million characters"),
    "lines.zst": (zstandard_of([b"a b\n" * 10_000] * 1000), "at most 2,000,000 rows"),
    "garbage.zst": (plain(b"\x28\xb5\x2f\xfd" + b"garbage" * 100), "Zstandard that can be read"),
    "bomb.parquet": (parquet_bomb, "Parquet that can be read"),
    "cut.parquet": (cut_parquet, "Parquet that can be read"),
    "garbage.parquet": (plain(b"PAR1" + zlib.compress(b"garbage") * 10), "Parquet that can be"),
    "columns.parquet": (parquet_of_other_columns, "it has embedding: see columns.prompt"),
}


def read(paths: list[Path]) -> tuple[list[int | str], float, float]:
    command = [sys.executable, "-m", "tests.support.read_dataset", *map(str, paths)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=200)
    told = json.loads(ended.stdout)
    return told["answers"], told["peak_mb"], told["children_peak_mb"]


def test_hostile_files_are_refused_in_bounded_memory(tmp_path: Path) -> None:
    paths = []
    for name, (write, _) in HOSTILE.items():
        paths.append(tmp_path / name)
        write(paths[-1])
    sizes_before = {path: path.stat().st_size for path in tmp_path.iterdir()}

    answers, peak_mb, children_peak_mb = read(paths)

    refusals = dict(zip(HOSTILE, answers, strict=True))
    assert {
        name: refusals[name]
        for name, (_, words) in HOSTILE.items()
        if words not in str(refusals[name])
    } == {}
    assert all(len(str(refusal)) < 1500 for refusal in answers)
    assert peak_mb < MAX_OWN_MB
    assert children_peak_mb < MAX_CHILD_MB
    assert {path: path.stat().st_size for path in tmp_path.iterdir()} == sizes_before


def test_parquet_and_zstandard_are_read_as_others_are(tmp_path: Path) -> None:
    conversation = [{"from": "human", "value": "one two"}, {"from": "gpt", "value": "three"}]
    tables = {
        "sharegpt.parquet": {"conversations": [conversation] * 4, "image": [b"\xff"] * 4},
        "prompts.parquet": {"id": [1, 2], "question": ["one two", "three"]},
    }
    paths = [tmp_path / name for name in tables]
    for path, columns in zip(paths, tables.values(), strict=True):
        parquet.write_table(pa.table(columns), path, row_group_size=2)
    paths.append(tmp_path / "prompts.jsonl.zst")
    zstandard_of([b'{"prompt": "one two"}\n{"prompt": "three"}\n'])(paths[-1])

    answers, _, _ = read(paths)

    assert answers == [4, 2, 2]
