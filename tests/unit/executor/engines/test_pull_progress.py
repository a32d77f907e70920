from typing import Any

import pytest

from services.executor.runtimes.docker.pull_progress import PullProgress, PullRefused


def message(layer: str, status: str, current: int = 0, total: int = 0) -> dict[str, Any]:
    return {"id": layer, "status": status, "progressDetail": {"current": current, "total": total}}


def fed(*messages: dict[str, Any]) -> PullProgress:
    progress = PullProgress()
    for each in messages:
        progress.feed(each)
    return progress


def test_a_pull_ends_at_one_with_all_layers() -> None:
    progress = fed(
        {"status": "Pulling from vllm/vllm-openai", "id": "v1"},
        message("a", "Pulling fs layer"),
        message("b", "Already exists"),
        message("a", "Downloading", 50, 100),
        message("a", "Download complete"),
        message("a", "Extracting", 100, 100),
        message("a", "Pull complete"),
        {"status": "Digest: sha256:0"},
    )

    assert progress.fraction == pytest.approx(1.0)
    assert progress.sentence == "2 of 2 layers, 0 of 0 MB"


def test_layers_count_by_their_bytes() -> None:
    progress = fed(
        message("small", "Pulling fs layer"),
        message("large", "Downloading", 9_000_000, 9_000_000),
        message("small", "Downloading", 0, 1_000_000),
    )

    assert progress.fraction == pytest.approx(0.7 * 0.9)
    assert progress.sentence == "0 of 2 layers, 9 of 10 MB"


def test_late_layer_never_lowers_progress() -> None:
    progress = fed(message("a", "Downloading", 90, 100))
    before = progress.fraction

    progress.feed(message("b", "Pulling fs layer"))

    assert progress.fraction == before


def test_message_without_layer_changes_nothing() -> None:
    assert not PullProgress().feed({"status": "Status: Image is up to date"})


def test_pull_error_keeps_registry_message() -> None:
    with pytest.raises(PullRefused, match="manifest unknown"):
        fed({"errorDetail": {"message": "manifest unknown"}, "error": "manifest unknown"})
