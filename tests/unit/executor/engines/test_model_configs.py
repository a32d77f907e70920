import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from services.executor.engines import model_configs
from services.executor.engines.model_configs import (
    ModelConfigs,
    ModelFacts,
    model_directories,
    scan,
)
from services.executor.settings import ExecutorSettings


def model(directory: Path, config: Any) -> None:
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(config))


def test_models_are_named_as_tasks_name_them(
    tmp_path: Path,
) -> None:
    model(tmp_path / "flat", {"torch_dtype": "bfloat16"})
    model(tmp_path / "Qwen" / "Qwen3-8B", {"dtype": "float16"})
    model(
        tmp_path / "models--meta-llama--Llama--x" / "snapshots" / "abc", {"torch_dtype": "bfloat16"}
    )

    assert scan((tmp_path, tmp_path / "absent")) == {
        "flat": ModelFacts(precisions=("bfloat16",)),
        "Qwen/Qwen3-8B": ModelFacts(precisions=("float16",)),
        "meta-llama/Llama--x": ModelFacts(precisions=("bfloat16",)),
    }


def test_what_is_no_config_is_left_out(tmp_path: Path) -> None:
    model(tmp_path / "a", {"torch_dtype": 7})
    model(tmp_path / "deep", "x")
    (tmp_path / "deep" / "config.json").write_text("[" * 100_000)
    model(tmp_path / "silent", {})
    model(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")), {"torch_dtype": "bfloat16"})
    (tmp_path / "file").write_text("no directory")

    assert scan((tmp_path,)) == {}


def test_models_lie_below_roots_and_in_hub_caches(tmp_path: Path) -> None:
    settings = ExecutorSettings(node_id="n1", model_roots="/a:/b", model_cache_dir="/c")

    found = model_directories(settings, {"HF_HOME": "/home", "HF_HUB_CACHE": "/hub"})

    assert [*map(str, found)] == ["/a", "/b", "/hub", "/c/hub", "/home/hub"]


async def test_hanging_directory_does_not_delay_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(tmp_path / "a", {"torch_dtype": "bfloat16"})
    models = ModelConfigs((tmp_path,))
    before = await models.read_models()
    answers = threading.Event()

    def hang(roots: tuple[Path, ...]) -> dict[str, ModelFacts]:
        answers.wait(60)
        return {}

    monkeypatch.setattr(model_configs, "SCAN_SECONDS", 0.05)
    monkeypatch.setattr(model_configs, "scan", hang)
    try:
        meanwhile = [await models.read_models(), await models.read_models()]
    finally:
        answers.set()
    monkeypatch.setattr(model_configs, "SCAN_SECONDS", 60)

    assert before == {"a": ModelFacts(precisions=("bfloat16",))}
    assert meanwhile == [before, before]
    assert await models.read_models() == {}
