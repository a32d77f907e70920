"""What lists ask of the server, and what a mistyped option or file is told, in this process."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from schemas.base import API
from schemas.gateway.views import GpuList, GpuPodView
from schemas.orchestrator.views import ExperimentList, TaskList
from schemas.results.series import WhoseReading
from schemas.scheduler.views import ReservationList
from services.cli.command_line import cli, main
from services.cli.commands.listing import is_of_pod
from services.cli.options import Target
from shared.client.discovery import Address
from shared.client.http import StewardClient
from tests.support.worlds.gateway_views import make_gpu

ANSWERS = {
    "/tasks": TaskList(tasks=()),
    "/experiments": ExperimentList(experiments=()),
    "/reservations": ReservationList(reservations=()),
    "/gpus": GpuList(gpus=(make_gpu(0), make_gpu(1))),
}
Asked = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What is asked of a platform with two free GPUs and nothing else."""
    found: Asked = []

    class Client(StewardClient):
        async def _once(self, request: Any, limit_seconds: float) -> bytes:  # noqa: ARG002  # its form
            path = request.address.removeprefix(API)
            found.append((path, request.query))
            return msgspec.json.encode(ANSWERS[path])

    def ask(_: Target, question: Callable[[StewardClient], Any], **__: Any) -> Any:
        return asyncio.run(question(Client(Address(url="http://test"))))

    monkeypatch.setattr(Target, "ask", ask)
    return found


@pytest.mark.parametrize(
    ("typed", "path", "wanted"),
    [
        (
            "tasks --state running,failed --namespace team-a",
            "/tasks",
            {"state": "running,failed", "namespace": "team-a", "limit": "1000"},
        ),
        (
            "reservations --state queued --node alpha",
            "/reservations",
            {"state": "queued", "node_id": "alpha", "limit": "1000"},
        ),
        (
            "experiments --namespace team-a --node alpha",
            "/experiments",
            {"namespace": "team-a", "node_id": "alpha", "limit": "1000", "monitoring": "true"},
        ),
        ("gpus --node alpha", "/gpus", {"node_id": "alpha"}),
    ],
)
def test_filters_of_lists_are_asked_of_the_server(
    asked: Asked, typed: str, path: str, wanted: dict[str, Any]
) -> None:
    cli.main(typed.split(), standalone_mode=False)

    assert asked == [(path, wanted)]


def test_gpus_of_another_state_are_not_shown(
    asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["gpus", "--state", "held"], standalone_mode=False)

    assert capsys.readouterr().out == "none of 2 GPUs matches; `gpusteward gpus` lists them\n"


def test_unknown_state_is_refused_with_known_ones() -> None:
    with pytest.raises(click.BadParameter, match=r"accepted, running, .*; found 'sleeping'"):
        cli.main(["tasks", "--state", "sleeping"], standalone_mode=False)


def test_broken_json_is_refused_with_position(
    asked: Asked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "task.json"
    file.write_text('{\n  "task_name": tuning\n}')

    with pytest.raises(SystemExit):
        main(["submit", str(file)])

    expected = f"gpusteward: {file}, line 2, column 16: this is not JSON: Expecting value\n"
    assert capsys.readouterr().err == expected
    assert asked == []


@pytest.mark.parametrize(
    ("named", "is_shown"),
    [
        ("llama-0", True),
        ("serving/llama-0", True),
        ("serving/", True),
        ("llama", False),
        ("other/llama-0", False),
        ("llama-0/", False),
    ],
)
def test_gpus_are_found_by_the_pod_that_has_them(named: str, is_shown: bool) -> None:
    pod = GpuPodView(namespace="serving", pod="llama-0", container="main")

    assert is_of_pod(make_gpu(pods=(pod,)), named) is is_shown
    assert not is_of_pod(make_gpu(), named)


def run_command(*arguments: str) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(arguments)


def test_pods_show_whose_use_a_reading_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = GpuPodView(
        namespace="serving",
        pod="llama-0",
        container="main",
        kind="mps",
        percent=25,
        owner="Deployment/llama",
        reading=WhoseReading.OWN,
        memory_used_mb=1_000,
        memory_given_mb=2_000,
        utilization_percent=20.0,
    )
    shared = GpuPodView(
        namespace="team-b", pod="notebook-0", container="main", reading=WhoseReading.GPU
    )
    view = GpuList(gpus=(make_gpu(pods=(own, shared)),))
    monkeypatch.setattr(Target, "ask", lambda *_: view)

    run_command("pods")
    told = capsys.readouterr().out
    run_command("pods", "--namespace", "serving", "--json")
    [line] = json.loads(capsys.readouterr().out)

    assert "Deployment/llama" in told
    assert "1000/2000" in told
    assert "its own" in told
    assert "the whole GPU's" in told
    assert (line["pod"], line["reading"], line["percent"]) == ("llama-0", "own", 25)
