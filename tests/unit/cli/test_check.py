"""What the commands of `gpusteward check` print, and how they end."""

import json
from pathlib import Path

import pytest

from schemas.errors import EXIT_CODE, ErrorCode
from services.cli.command_line import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int | str | None, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["check", *arguments])
    shown = capsys.readouterr()
    return ended.value.code, shown.out, shown.err


def test_a_driver_that_is_too_old_is_told_with_what_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, told, _ = run(capsys, "cuda", "vllm/vllm-openai:v0.8.5-cu128", "--driver", "550.144.03")

    assert code == EXIT_CODE[ErrorCode.UNSUPPORTED]
    assert told.startswith("blocked: the driver's CUDA 12.4 is below the runtime's 12.8")
    assert "update the driver to CUDA 12.8 or newer" in told
    assert "driver_below_runtime (accelerator guide" in told


def test_a_driver_that_serves_needs_no_platform(capsys: pytest.CaptureFixture[str]) -> None:
    code, told, _ = run(
        capsys, "cuda", "12.8", "--driver", "12.4", "--rules", "lenient", "--url", "http://[::1]:1"
    )
    as_json = run(capsys, "cuda", "11.8", "--driver", "12.4", "--mode", "vgpu", "--json")

    assert (code, told.split(":")[0]) == (0, "supported")
    assert as_json[0] == 0
    assert json.loads(as_json[1])["verdict"] == "case_by_case"


def test_what_tells_no_version_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, said = run(capsys, "cuda", "vllm/vllm-openai:latest", "--driver", "12.4")

    assert code == EXIT_CODE[ErrorCode.BAD_REQUEST]
    assert "docker image inspect" in said


def test_a_precision_that_a_gpu_lacks_is_told_with_what_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, told, _ = run(capsys, "precision", "bfloat16", "--gpu", "V100")
    documented = run(
        capsys, "precision", "fp8", "--capability", "8.6", "--rules", "documented", "--json"
    )

    assert code == EXIT_CODE[ErrorCode.UNSUPPORTED]
    assert "bfloat16 needs compute capability 8.0, and this is 7.0" in told
    assert "--dtype half" in told
    assert (documented[0], json.loads(documented[1])["verdict"]) == (0, "supported")


def test_a_model_is_checked_by_all_that_its_config_names(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = {"torch_dtype": "bfloat16", "quantization_config": {"quant_method": "fp8"}}
    (tmp_path / "config.json").write_text(json.dumps(config))

    code, told, _ = run(
        capsys, "precision", "--model", str(tmp_path), "--capability", "8.0", "--json"
    )
    neither = run(capsys, "precision")

    view = json.loads(told)
    assert (code, view["verdict"]) == (0, "case_by_case")
    assert [each["verdict"] for each in view["findings"]] == ["case_by_case", "supported"]
    assert "expected a PRECISION" in neither[2]
