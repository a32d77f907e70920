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


def test_old_driver_is_reported_with_action(
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


def test_unsupported_precision_has_action(
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


def test_model_is_checked_by_its_config(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
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


DEFINITION = """
- {custom_name: gpu-manager, group: gpu-manager, key: tencent.com/vcuda-core, default_value: 20}
- custom_name: gpu-manager
  group: gpu-manager
  key: tencent.com/vcuda-memory
  description_en: "a unit is 256 MiB"
  description_zh: 显存
"""


@pytest.mark.parametrize(
    ("locale", "description"),
    [("de_DE.UTF-8", "a unit is 256 MiB"), ("zh_CN.UTF-8", "显存"), ("C", "a unit is 256 MiB")],
)
def test_generated_config_maps_are_valid_and_grouped(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    locale: str,
    description: str,
) -> None:
    monkeypatch.setenv("LC_ALL", locale)
    (tmp_path / "definition.yaml").write_text(DEFINITION)
    _, written, _ = run(capsys, "new-device-config", str(tmp_path / "definition.yaml"))
    (tmp_path / "made.yaml").write_text(written)

    code, told, _ = run(capsys, "device-config", str(tmp_path / "made.yaml"))

    assert written.count("kind: ConfigMap") == 2
    assert code == 0
    assert told.index("vcuda-core") < told.index("vcuda-memory")
    assert description in told
    assert told.count("256 MiB") + told.count("显存") == 1


def test_violations_are_told_by_file_and_document(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "definition.yaml").write_text(DEFINITION)
    _, written, _ = run(capsys, "new-device-config", str(tmp_path / "definition.yaml"))
    path = tmp_path / "made.yaml"
    path.write_text(written.replace("kube-public", "default", 1).replace("'true'", "true"))

    code, told, _ = run(capsys, "device-config", str(path))

    assert code == EXIT_CODE[ErrorCode.BAD_REQUEST]
    assert (
        f"{path}, document 1: $.metadata.namespace: expected 'kube-public', got 'default'" in told
    )
    assert told.count('expected "true" or "false" in quotes, got True') == 2


def test_json_list_is_read_others_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "list.json"
    path.write_text(json.dumps({"kind": "List", "items": [{"kind": "Secret"}]}))
    code, told, _ = run(capsys, "device-config", str(path), "--json")
    (tmp_path / "bad.yaml").write_text("a: [")
    bad = run(capsys, "device-config", str(tmp_path / "bad.yaml"))
    (tmp_path / "other.yaml").write_text("- 7")
    other = run(capsys, "new-device-config", str(tmp_path / "other.yaml"))

    findings = json.loads(told)["findings"]
    assert code == EXIT_CODE[ErrorCode.BAD_REQUEST]
    assert findings[0]["subject"].startswith(f"{path}, item 1: $.")
    assert "neither YAML nor JSON" in bad[2]
    assert other[0] == EXIT_CODE[ErrorCode.BAD_REQUEST]


def test_limits_of_a_container_are_read_as_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    cores = "tencent.com/vcuda-core"

    assert run(capsys, "resources", f"{cores}=200")[1].startswith("supported: this is 2 whole GPUs")
    assert "0.30 of one GPU" in run(capsys, "resources", f"{cores}=30")[1]
    code, told, _ = run(capsys, "resources", f"{cores}=30", "--mig")
    assert code == EXIT_CODE[ErrorCode.UNSUPPORTED]
    assert "disable MIG" in told
    assert "a multiple of 100, got 150" in run(capsys, "resources", f"{cores}=150")[2]
    assert "expected RESOURCE=COUNT" in run(capsys, "resources", cores)[2]
