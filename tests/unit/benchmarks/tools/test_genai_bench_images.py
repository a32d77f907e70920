"""The folder of images that genai-bench draws from."""

import csv
import json
import random
from pathlib import Path

import pytest

from schemas.task.benchmark import BenchmarkSpec
from shared.benchmarks.genai_bench.image_folder import write_images


@pytest.mark.parametrize(
    ("scenario", "requests", "count"),
    [("I(40,30,2)", 5, 10), ("I(40,30)", 1000, 256), ("I(8000,8000)", 100, 3)],
)
def test_folder_has_as_many_images_as_make_sense(
    scenario: str, requests: int, count: int, tmp_path: Path
) -> None:
    spec = BenchmarkSpec(traffic_scenarios=(scenario,), max_requests_per_level=requests)
    path = write_images(tmp_path / "images", spec, random.Random(1))

    document = json.loads(path.read_bytes())
    folder = Path(document["source"]["path"])
    with (folder / "metadata.csv").open() as file:
        rows = list(csv.DictReader(file))
    names = {row["file_name"] for row in rows}
    assert len(rows) == count
    assert names == {each.name for each in folder.glob("*.png")}
    assert all(row["text"] for row in rows)
