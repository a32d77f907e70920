"""What is known about failures: rules for every kind, texts recognised as what they mean."""

import time

import pytest

from schemas.executor.attempts import FailureKind
from shared.failures import CATALOGUE, RULES, Known, findings, recognise
from tests.support.tables import for_each


def test_every_kind_of_failure_has_a_rule_and_a_hint() -> None:
    assert set(RULES) == set(FailureKind)
    assert all(rule.hint for rule in RULES.values())


def test_failure_by_the_task_is_never_retried() -> None:
    own_fault = {
        FailureKind.IMAGE_MISSING,
        FailureKind.BAD_PARAMETER,
        FailureKind.OUT_OF_MEMORY,
        FailureKind.GPU_OUT_OF_MEMORY,
        FailureKind.BENCHMARK_FAILED,
        FailureKind.TIMEOUT,
        FailureKind.CANCELLED,
    }

    assert not any(RULES[kind].retries for kind in own_fault)


def test_failure_tried_elsewhere_is_retried_once() -> None:
    assert all(rule.retries >= 1 for rule in RULES.values() if rule.elsewhere)


def test_what_a_node_causes_is_repeated_on_another() -> None:
    of_the_node = {
        FailureKind.CUDA_ERROR,
        FailureKind.GPU_UNAVAILABLE,
        FailureKind.DISK_FULL,
        FailureKind.NODE_LOST,
        FailureKind.RUNTIME_UNAVAILABLE,
    }

    assert all(RULES[kind].retries and RULES[kind].elsewhere for kind in of_the_node)
    assert RULES[FailureKind.PORT_TAKEN].retries
    assert not RULES[FailureKind.PORT_TAKEN].elsewhere


@for_each("known", CATALOGUE, name=lambda known: known.failure.title)
def test_catalogue_recognises_its_examples(known: Known) -> None:
    log = f"INFO starting\n{known.example}\nINFO the end"

    assert recognise(known.example) is known.failure
    assert recognise(log) is known.failure
    assert known.failure.title
    assert known.failure.hint
    assert known.source


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("failed to discover GPU vendor from CDI: no known GPU vendor found", "GPU_UNAVAILABLE"),
        ('could not select device driver "nvidia" with capabilities: [[gpu]]', "GPU_UNAVAILABLE"),
        ("unknown or invalid runtime name: nvidia", "GPU_UNAVAILABLE"),
        ("stderr: Auto-detected mode as 'legacy'\nnvidia-container-cli: x", "GPU_UNAVAILABLE"),
        ("RuntimeError: No accelerator (CUDA, XPU, HPU, NPU) is available.", "GPU_UNAVAILABLE"),
        ("RuntimeError: Failed to infer device type", "GPU_UNAVAILABLE"),
        ("RuntimeError: CUDA error: out of memory", "GPU_OUT_OF_MEMORY"),
        ("allocating 20000 MiB on device 0: cudaMalloc failed: out of memory", "GPU_OUT_OF_MEMORY"),
        ("alloc_tensor_range: failed to allocate CUDA0 buffer of size 5064", "GPU_OUT_OF_MEMORY"),
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
         "GPU_OUT_OF_MEMORY"),
        ("ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 9",
         "OUT_OF_MEMORY"),
        ("Traceback (most recent call last):\nMemoryError", "OUT_OF_MEMORY"),
        ("OSError: [Errno 12] Cannot allocate memory", "OUT_OF_MEMORY"),
        ("torch.AcceleratorError: CUDA error: device-side assert triggered", "CUDA_ERROR"),
        ("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling cublasGemmEx", "CUDA_ERROR"),
        ("srv: couldn't bind HTTP server socket, hostname: 0.0.0.0, port: 8033", "PORT_TAKEN"),
        ("DistNetworkError: The server socket has failed to listen: EADDRINUSE", "PORT_TAKEN"),
        ("Bind for 127.0.0.1:8000 failed: port is already allocated", "PORT_TAKEN"),
        ("OSError: [Errno 28] No space left on device: '/models/cache'", "DISK_FULL"),
        ("dd: error writing '/dev/shm/x': No space left on device", "OUT_OF_MEMORY"),
        ("('Connection aborted.', FileNotFoundError(2, 'No such file or directory'))",
         "RUNTIME_UNAVAILABLE"),
        ("No such image: vllm/vllm-openai:nope", "IMAGE_MISSING"),
        ("Error response from daemon: unauthorized: authentication required", "IMAGE_MISSING"),
        ("net/http: TLS handshake timeout", "IMAGE_PULL_FAILED"),
        ("Error while fetching server API version: ('Connection aborted.', FileNotFoundError(2))",
         "RUNTIME_UNAVAILABLE"),
        ("API version: ('Connection aborted.', PermissionError(13, 'Permission denied'))",
         "RUNTIME_UNAVAILABLE"),
        ("simulated_server: error: unrecognized arguments: --what 1", "BAD_PARAMETER"),
        ("server: error: argument --port: invalid int value: 'x'", "BAD_PARAMETER"),
        ("OSError: no/such is not a local folder and is not a valid model identifier",
         "MODEL_MISSING"),
        ("llamacpp_server: expected a GGUF file or one of smollm2-135m, found nothing at /x",
         "MODEL_MISSING"),
        ("gguf_init_from_file: failed to open GGUF file '/x'", "MODEL_MISSING"),
        ("[rank1] Watchdog caught collective operation timeout: WorkNCCL", "RANK_FAILED"),
    ],
)  # fmt: skip
def test_other_wordings_are_recognised(text: str, want: str) -> None:
    found = recognise(text)

    assert found is not None
    assert found.kind is FailureKind[want]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "INFO Port 8000 is already in use, trying port 8001",
        "INFO: Application startup complete.",
        "WARNING memory usage 91 %",
        "RuntimeError: Engine core initialization failed. See root cause above.",
        "error: 0 requests failed",
    ],
)
def test_what_engines_say_in_passing_is_no_failure(text: str) -> None:
    assert recognise(text) is None


def test_cause_with_consequence_precedes_later_ones() -> None:
    text = (
        "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, CUDA out of memory\n"
        "safetensors_rust.SafetensorError: Error while deserializing header"
    )

    assert [each.line for each in findings(text)] == text.splitlines()


def test_log_tells_causes_before_consequences() -> None:
    log = (
        "(EngineCore) RuntimeError: CUDA error: unspecified launch failure\n"
        "(Worker) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"
        "bystander\n" + "x" * 5_000 + " OSError: [Errno 28] ENOSPC " + "y" * 5_000
    )

    found = findings(log)

    kinds = [each.failure.kind.value for each in found]
    assert kinds == ["disk_full", "gpu_out_of_memory", "cuda_error"]
    assert "ENOSPC" in found[0].line
    assert found[1].line.startswith("(Worker) torch.OutOfMemoryError")
    assert found[2].line == log.splitlines()[0]
    assert all(len(each.line) <= 300 for each in found)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(("x" * 1000 + "\n") * 1000, id="many long lines"),
        pytest.param("connection aborted " * 13_000, id="one line without end"),
    ],
)
def test_log_length_does_not_bound_the_search(text: str) -> None:
    began = time.process_time()

    findings(text)

    assert time.process_time() - began < 1.0


def test_the_end_of_a_long_log_is_what_counts() -> None:
    text = "x" * 1000 + "\n"

    assert recognise(text * 1000 + "CUDA out of memory. Tried to allocate 2 GiB\n") is not None
