"""TensorRT-LLM's command: flags with underscores, and a configuration file made on the way."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from services.executor.engines.engine_table import IMAGES, build_command
from services.executor.engines.image import container_command
from shared.engines.table import LAUNCHES
from shared.engines.trtllm.launcher import PROGRAM
from shared.errors import RefusedError

FLAGS: dict[str, Any] = {
    "max-batch-size": 64,
    "enable_chunked_prefill": True,
    "kv-cache-config": '{"dtype": "fp8", "host_cache_size": 1073741824}',
    "speculative-config": '{"decoding_type": "NGram", "max_draft_len": 4}',
}
SHOW = """#!{python}
import json, sys
words = sys.argv[1:]
place = words.index("--config")
print(json.dumps([words[:place], json.load(open(words[place + 1]))]))
"""


def started(arguments: list[str], folder: Path) -> tuple[list[str], dict[str, Any]]:
    """What `trtllm-serve` gets, by a program of that name which shows it."""
    program = folder / "trtllm-serve"
    program.write_text(SHOW.format(python=sys.executable))
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "TMPDIR": str(folder)}
    ran = subprocess.run(arguments, env=environment, capture_output=True, check=True, text=True)
    words, settings = json.loads(ran.stdout)
    return words, settings


def test_blocks_reach_the_engine_as_its_configuration(tmp_path: Path) -> None:
    command = build_command("trtllm", "org/m", FLAGS, port=8000, host="127.0.0.1")

    words, settings = started(list(command.argv), tmp_path)

    assert words == [
        *("org/m", "--max_batch_size", "64", "--enable_chunked_prefill"),
        *("--host", "127.0.0.1", "--port", "8000"),
    ]
    assert settings == {
        "return_perf_metrics": True,
        "enable_iter_perf_stats": True,
        "kv_cache_config": {"dtype": "fp8", "host_cache_size": 1 << 30},
        "speculative_config": {"decoding_type": "NGram", "max_draft_len": 4},
    }


def test_container_begins_with_the_same_program() -> None:
    image = IMAGES["trtllm"]

    command = container_command(image, "org/m", {"tp_size": 2}, served_model_name="m")

    assert image.entrypoint == PROGRAM
    assert command.argv[:3] == ("org/m", "--tp_size", "2")


def test_a_person_gets_the_same_arguments() -> None:
    launch = LAUNCHES["trtllm"]

    arguments = launch.arguments({"max-batch-size": 64, "enable-chunked-prefill": False})

    assert arguments == [["--max_batch_size", "64"], []]


@pytest.mark.parametrize(
    "parameters",
    [
        {"speculative-config": '{"decoding_type": "User_Provided"}'},
        {"lora-config": '{"lora_dir": ["/etc"]}'},
        {"extra-llm-api-options": "x.yaml"},
        {"custom-tokenizer": "os.path"},
        {"server-role": "context"},
    ],
)
def test_what_opens_files_or_code_is_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(RefusedError):
        build_command("trtllm", "org/m", parameters, port=8000)
