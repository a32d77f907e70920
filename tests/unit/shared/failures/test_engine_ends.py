"""The cause of an engine's end, found in its whole log."""

import os
from pathlib import Path

import pytest

from schemas.executor.attempts import FailureKind
from services.executor.domain.verdict import engine_exit
from shared.failures import RULES, findings
from shared.failures.log_lines import Weight, weigh_lines
from tests.support.known_logs.layouts import KnownLog, known_logs
from tests.support.tables import for_each

LOGS = list(known_logs())
RIGHT_SHARE = 0.95
# The task's own: another try, there or on another node, ends the same.
OWN = {FailureKind.BAD_PARAMETER, FailureKind.GPU_OUT_OF_MEMORY, FailureKind.OUT_OF_MEMORY}


def kind_of(text: str) -> FailureKind:
    return engine_exit("vllm", 1, "while loading", text).kind


@for_each("log", [log for log in LOGS if not log.is_held_back], name=lambda log: log.cause)
def test_each_cause_is_found_in_the_log_around_it(log: KnownLog) -> None:
    assert kind_of(log.text) is log.kind


def test_unlisted_wordings_are_recognised() -> None:
    held_back = [log for log in LOGS if log.is_held_back]

    right = [log for log in held_back if kind_of(log.text) is log.kind]

    assert len(LOGS) >= 150
    assert len(held_back) >= len(LOGS) // 2
    assert len(right) >= RIGHT_SHARE * len(held_back)


def test_cause_of_the_task_is_never_repeated() -> None:
    own = [log for log in LOGS if log.kind in OWN]

    assert not [log.cause for log in own if RULES[kind_of(log.text)].retries]


def test_a_model_that_nobody_has_is_final() -> None:
    text = "OSError: x/no-such is not a local folder and is not a valid model identifier"

    assert engine_exit("vllm", 1, "while loading", text).is_final
    assert not engine_exit("vllm", 1, "while loading", "CUDA error: unknown error").is_final


@pytest.mark.parametrize(
    "line",
    [
        "INFO 11-27 10:00:01 [utils.py:233] non-default args: {'trust_remote_code': True}",
        "[2026-11-27 10:00:01] server_args=ServerArgs(model_path='/m', trust_remote_code=True)",
        "INFO If you are running out of memory, consider decreasing it.",
        "If you are trying to access a private or gated repo, make sure you are authenticated.",
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above.",
        '  File "/opt/flash_attn/interface.py", line 230, in forward',
        "    ^^^^^^^^^^^^^^^^^^",
        "[2026-11-27 10:00:05] Received sigquit from a child process.",
        "0.01.281.849 I print_info: out of memory = 0",
    ],
)
def test_what_is_said_in_passing_weighs_nothing(line: str) -> None:
    assert list(weigh_lines(line)) == []


@pytest.mark.parametrize(
    ("line", "weight"),
    [
        ("WARNING 11-27 10:00:05 [custom_all_reduce.py:147] P2P test failed.", Weight.WARNING),
        ("[rank0]:[W1127 10:00:10.1 ProcessGroupNCCL.cpp:1538] Warning: x", Weight.WARNING),
        ("/opt/torch/cuda.py:283: UserWarning: sm_120 is not compatible", Weight.WARNING),
        ("(EngineCore pid=2) ERROR 11-27 10:00:09 [core.py:708] ValueError: x", Weight.RAISED),
        ("torch.OutOfMemoryError: CUDA out of memory.", Weight.RAISED),
        ("terminate called after throwing an instance of 'std::bad_alloc'", Weight.RAISED),
        ("0.01.289.827 E alloc_tensor_range: failed to allocate buffer", Weight.TEXT),
        ("node:1:2 [0] NCCL WARN Error while creating shared memory segment", Weight.TEXT),
        ("bash: line 1: vllm: command not found", Weight.TEXT),
    ],
)
def test_a_raised_error_weighs_most(line: str, weight: Weight) -> None:
    assert [found for found, _ in weigh_lines(line)] == [weight]


def test_survived_warning_is_no_cause() -> None:
    text = "WARNING Falling back: CUDA error: unknown error\nFooError: nobody knows this"

    assert findings(text) == ()
    assert findings(text.splitlines()[0]) != ()


CASES = {
    "d01-vllm-root-cause-above": FailureKind.GPU_OUT_OF_MEMORY,
    "d02-vllm-allreduce-warning": FailureKind.ENGINE_MISSING,
    "d03-hf-misspelt-model": FailureKind.MODEL_MISSING,
    "d05-uuid-int": FailureKind.ENGINE_MISSING,
    "d07-flash-attention-t4": FailureKind.BAD_PARAMETER,
    "d07b-sglang-sm75": FailureKind.BAD_PARAMETER,
    "d09-sglang-warmup-proxy": FailureKind.ENGINE_EXITED,
    "d11-sglang-trust-arg-arch": FailureKind.BAD_PARAMETER,
    "d12-vllm-graph-hint": FailureKind.ENGINE_MISSING,
    "d15-flash-attn-missing": FailureKind.ENGINE_MISSING,
    "d16-ptxas": FailureKind.CUDA_ERROR,
    "d19-sglang-fraction": FailureKind.GPU_OUT_OF_MEMORY,
    "d20-nccl-timeout": FailureKind.RANK_FAILED,
    "d21-llama-vulkan": FailureKind.GPU_OUT_OF_MEMORY,
    "d22-rocblas": FailureKind.CUDA_ERROR,
    "d23-nvcc-flashinfer": FailureKind.ENGINE_MISSING,
    "d24-hf-401-badtoken": FailureKind.MODEL_MISSING,
    "d26-cuda-driver-oom": FailureKind.GPU_OUT_OF_MEMORY,
}


@for_each("name", CASES)
def test_logs_from_the_field_tell_their_cause(name: str) -> None:
    data = os.environ.get("GPUSTEWARD_TEST_DATA")
    if data is None:
        pytest.skip("needs logs from the field: set GPUSTEWARD_TEST_DATA to their folder")

    assert kind_of((Path(data) / "cases" / f"{name}.log").read_text()) is CASES[name]
