"""The first task file that a command writes."""

import re
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from schemas.task.task_file import DeploymentMode, TaskFile
from services.cli.command_line import cli
from services.cli.task_templates import name_for, task_template
from shared.engines.table import PROFILES
from shared.yaml_documents import json_of_yaml


def task_of(text: str) -> TaskFile:
    return msgspec.json.decode(json_of_yaml(text.encode()), type=TaskFile)


@pytest.mark.parametrize("engine", PROFILES)
def test_template_is_valid_without_comments(engine: str) -> None:
    text = task_template(engine, None, None, None)
    more = task_of(re.sub(r"^  # (?=[\w-]+: \[)", "  ", text, flags=re.MULTILINE))

    task = task_of(text)

    assert task.base_runtime == engine
    assert 1 < len(task.parameters) <= len(more.parameters)
    assert (engine == "simulated") == (len(task.parameters) == len(more.parameters))
    assert task.optimization.is_trust_asked


def test_what_is_given_stands_in_the_task() -> None:
    task = task_of(task_template("vllm", 'a "b"/C D', "process", "mine"))

    assert (task.model.id_or_path, task.task_name) == ('a "b"/C D', "mine")
    assert task.deployment_mode is DeploymentMode.PROCESS


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("Qwen/Qwen3-8B", "qwen3-8b-vllm"),
        ("/models/My Model/", "my-model-vllm"),
        ("///", "model-vllm"),
    ],
)
def test_a_name_follows_from_the_model(model: str, name: str) -> None:
    assert name_for("vllm", model) == name


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    path = tmp_path / "task.yaml"
    first = CliRunner().invoke(cli, ["new", str(path), "--engine", "sglang"])
    written = path.read_text()

    second = CliRunner().invoke(cli, ["new", str(path)])

    assert first.exit_code == 0
    assert f"gpusteward validate {path}" in first.output
    assert written == task_template("sglang", None, None, None)
    assert "is there already" in str(second.exception)
    assert path.read_text() == written
