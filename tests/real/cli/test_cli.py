"""The command as a process, against a stand-in for the gateway."""

import ast
import asyncio
import json
import os
import pty
import resource
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from schemas.errors import EXIT_CODE, ErrorCode
from schemas.orchestrator.experiments import ExperimentState, TaskState
from schemas.scheduler.reservations import ReservationState
from services.cli.display.tables import short
from tests.support.fakes.gateway import stub_gateway
from tests.support.processes.command_line import Command
from tests.support.worlds.gateway_views import (
    make_experiment,
    make_metrics,
    make_monitoring,
    make_plan,
    make_reservation,
    make_task,
)


@pytest.fixture
async def command(tmp_path: Path) -> AsyncIterator[Command]:
    async with stub_gateway() as (stub, url):
        yield Command(stub, url, tmp_path)


async def test_help_is_fast_without_slow_libraries(command: Command) -> None:
    probe = (
        "import sys\n"
        "from services.cli.command_line import cli\n"
        "list(cli.commands.values())\n"
        "slow = {'aiohttp', 'rich', 'nats', 'asyncpg', 'textual', 'mcp'}\n"
        "print(sorted(slow & sys.modules.keys()))"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", probe), stdout=asyncio.subprocess.PIPE, env=command.environment
    )
    out, _ = await process.communicate()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    helping = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.cli", "--help"),
        stdout=asyncio.subprocess.PIPE,
        env=command.environment,
    )
    shown, _ = await helping.communicate()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)

    assert out.decode().strip() == "[]"
    assert (helping.returncode, b"demo" in shown) == (0, True)
    assert after.ru_utime - before.ru_utime < 1.0  # of a core, whatever else runs; 0.3 s is usual


@pytest.mark.parametrize(
    ("name", "imported"),
    [
        (None, []),
        ("gpus", ["listing"]),
        ("show", ["listing"]),
        ("token", ["operations", "operations.token"]),
        ("report", ["report"]),
    ],
)
async def test_command_lookup_imports_only_its_module(
    command: Command, name: str | None, imported: list[str]
) -> None:
    probe = (
        "import sys\n"
        "from services.cli.command_line import cli\n"
        f"cli.commands.get({name!r})\n"
        "found = sorted(sys.modules)\n"
        "print([each[22:] for each in found if each.startswith('services.cli.commands.')])\n"
        "print(sorted({'aiohttp', 'asyncio', 'docker', 'nats', 'rich', 'yaml'} & set(found)))"
    )

    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", probe), stdout=asyncio.subprocess.PIPE, env=command.environment
    )
    out, _ = await process.communicate()

    modules, libraries = out.decode().splitlines()
    assert ast.literal_eval(modules) == imported
    assert libraries == "[]"


@pytest.mark.long
async def test_each_command_module_can_be_imported_first(command: Command) -> None:
    """Forked commands have imported them all, in one order."""
    probe = (
        "import importlib, os, sys\n"
        "from services.cli.command_line import FUNCTIONS\n"
        "for name in FUNCTIONS:\n"
        "    if (pid := os.fork()) == 0:\n"
        "        importlib.import_module(name)\n"
        "        os._exit(0)\n"
        "    if os.waitpid(pid, 0)[1]:\n"
        "        sys.exit(name)"
    )

    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", probe), stderr=asyncio.subprocess.PIPE, env=command.environment
    )
    _, err = await process.communicate()

    assert (process.returncode, err.decode()) == (0, "")


@pytest.mark.parametrize(
    ("missing", "code", "last"),
    [
        ((), 0, "this task can run here"),
        (
            ("no executor runs mode 'docker'",),
            EXIT_CODE[ErrorCode.UNSUPPORTED],
            "this task cannot run here",
        ),
    ],
)
async def test_validate_tells_if_task_can_run_by_exit_code(
    command: Command, missing: tuple[str, ...], code: int, last: str
) -> None:
    command.stub.plan = make_plan(missing=missing)

    ended = await command("validate", "-", text="{}")
    document = await command("validate", "-", "--json", text="{}")

    assert (ended.code, document.code) == (code, code)
    assert ended.out.splitlines()[-1] == last
    assert [f"missing here: {lack}" in ended.out for lack in missing] == [True] * len(missing)
    assert json.loads(document.out)["missing"] == list(missing)


async def test_public_up_without_token_fails_before_start(command: Command, tmp_path: Path) -> None:
    given = ("--data-dir", str(tmp_path / "data"))

    refused = await command("up", *given, "--host", "0.0.0.0")  # noqa: S104  # refused
    is_untouched = not (tmp_path / "data").exists()
    made = await command("token", "create", *given, "--role", "viewer")

    assert (refused.code, refused.out) == (EXIT_CODE[ErrorCode.BAD_REQUEST], "")
    assert refused.err.count("\n") == 1
    assert f"`gpusteward token create --data-dir {tmp_path / 'data'}`" in refused.err
    assert is_untouched
    assert (made.code, len(made.out.splitlines())) == (0, 1)
    assert str(tmp_path / "data" / "tokens.json") in made.err


async def test_gpus_are_plain_in_pipe_and_json_on_request(
    command: Command,
) -> None:
    table = await command("gpus")
    document = await command("gpus", "--json")

    assert "\x1b" not in table.out
    assert table.out.count("simulated") == 2
    assert [gpu["uuid"] for gpu in json.loads(document.out)["gpus"]] == ["GPU-0", "GPU-1"]


@pytest.mark.parametrize("code", [ErrorCode.BAD_REQUEST, ErrorCode.NAME_TAKEN, ErrorCode.FORBIDDEN])
async def test_refused_submission_has_exit_code_and_field(
    command: Command, code: ErrorCode
) -> None:
    command.stub.refusal = code

    ended = await command("submit", "-", text="{}")

    assert ended.code == EXIT_CODE[code]
    assert ended.err == "gpusteward: refused by the test (at $.model)\n"
    assert ended.out == ""


@pytest.mark.parametrize("name", ["submit", "run"])
async def test_task_is_submitted_for_named_namespace(command: Command, name: str) -> None:
    command.stub.refusal = ErrorCode.FORBIDDEN if name == "submit" else None

    await command(name, "-", "--namespace", "team-a", text="{}")

    assert ("POST", "/api/v1/tasks?namespace=team-a", {}) in command.stub.calls


async def test_json_error_is_problem_document_on_stderr(command: Command) -> None:
    ended = await command("show", "01920000-0000-7000-8000-000000000000", "--json")

    assert ended.code == EXIT_CODE[ErrorCode.NOT_FOUND]
    assert json.loads(ended.err)["code"] == "not_found"


async def test_commands_without_platform_say_how_to_start(command: Command) -> None:
    del command.environment["GPUSTEWARD_URL"]

    ended = await command("tasks")

    assert ended.code == EXIT_CODE[ErrorCode.UNAVAILABLE]
    assert ended.err.startswith("gpusteward: no platform runs on ")
    assert ended.err.endswith("; start it with `gpusteward up`\n")


async def test_unknown_option_is_usage_error(command: Command) -> None:
    ended = await command("tasks", "--nonsense")

    assert ended.code == 2
    assert "Traceback" not in ended.err


async def test_show_takes_short_id(command: Command) -> None:
    task = make_task(state=TaskState.COMPLETED, experiments_total=1)
    experiment = make_experiment(
        task_id=task.task_id,
        objective_score=1.25,
        metrics=make_metrics(),
        gpu_monitoring=make_monitoring(),
    )
    command.stub.tasks, command.stub.experiments = [task], [experiment]

    listed = await command("tasks")
    shown = await command("show", short(task.task_id))

    assert short(task.task_id) in listed.out
    assert "experiments by minimize_latency (mean_e2e_latency)" in shown.out
    assert "10/55/90" in shown.out
    assert "simulated" in shown.out


async def test_delete_asks_or_names_the_option(
    command: Command,
) -> None:
    task = make_task(state=TaskState.COMPLETED, experiments_total=4)
    command.stub.tasks = [task]
    typed = str(task.task_id)

    unasked = await command("delete", typed)
    master, slave = pty.openpty()
    os.write(master, b"n\n")
    process = await command.start("delete", typed, stdin=slave)
    shown, _ = await process.communicate()
    os.close(slave)
    os.close(master)
    before = command.stub.calls_of("DELETE")
    deleted = await command("delete", typed, "--yes")

    assert (unasked.code, "add --yes" in unasked.err) == (2, True)
    assert b"Delete task tuning with 4 experiments and all that was measured? [y/N]" in shown
    assert before == []
    assert (deleted.code, deleted.out) == (0, "task tuning with 4 experiments deleted\n")
    assert [call[1] for call in command.stub.calls_of("DELETE")] == [f"/api/v1/tasks/{typed}"]


async def test_why_prints_every_reason_of_waiting_experiment(command: Command) -> None:
    reservation = make_task().task_id
    waiting = make_experiment(state=ExperimentState.WAITING, reservation_id=reservation)
    command.stub.experiments = [waiting]

    ended = await command("why", str(waiting.experiment_id))

    assert ended.out == (
        f"reservation {reservation}: queued, position 2 of 3\n2 GPUs are wanted, 1 is free\n"
        "expected start: unknown, a lease or a duration that matters has no end yet\n"
    )


async def test_why_of_what_does_not_wait_says_so(command: Command) -> None:
    done = make_experiment()
    command.stub.experiments = [done]

    ended = await command("why", str(done.experiment_id))

    assert ended.code == EXIT_CODE[ErrorCode.CONFLICT]
    assert ended.err == "gpusteward: it is succeeded and does not wait for GPUs\n"


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (ReservationState.REJECTED, ErrorCode.UNSATISFIABLE),
        (ReservationState.TIMED_OUT, ErrorCode.TIMEOUT),
    ],
)
async def test_ungranted_reservation_ends_with_reason(
    command: Command, outcome: ReservationState, code: ErrorCode
) -> None:
    command.stub.outcome = outcome

    ended = await command("reserve", "--gpus", "3")

    assert ended.code == EXIT_CODE[code]
    assert "the fleet has 2 GPUs" in ended.err


async def test_granted_reservation_is_released_by_short_id(
    command: Command,
) -> None:
    reserved = await command("reserve", "--gpus", "2", "--json")
    view = json.loads(reserved.out)

    released = await command("release", view["reservation_id"][-12:])

    assert [device["uuid"] for device in view["devices"]] == ["GPU-0", "GPU-1"]
    assert released.code == 0
    ((_, path, _),) = command.stub.calls_of("DELETE")
    assert path == f"/api/v1/reservations/{view['reservation_id']}?epoch=7&stopped=true"


async def test_foreign_release_is_refused_without_force(
    command: Command,
) -> None:
    held = make_reservation(holder="exec/carol-of-vision")
    command.stub.reservations = {held.reservation_id: held}

    asked = await command("release", str(held.reservation_id))
    withdrawn = await command("cancel", str(held.reservation_id))
    before = command.stub.calls_of("DELETE")
    released = await command("release", str(held.reservation_id), "--yes")

    assert (asked.code, withdrawn.code, before) == (2, 2, [])
    assert "ends 1 reservation on 1 GPU: exec/carol-of-vision" in asked.err
    assert (released.code, len(command.stub.calls_of("DELETE"))) == (0, 1)


async def test_cancel_says_which_experiments_run(command: Command) -> None:
    task = make_task(state=TaskState.RUNNING)
    command.stub.tasks = [task]
    command.stub.experiments = [make_experiment(3, state=ExperimentState.RUNNING)]

    asked = await command("cancel", str(task.task_id))

    assert asked.code == 2
    assert "This ends 1 running experiment: #3. Go on?" in asked.err
    assert command.stub.calls_of("POST") == []


async def test_platform_url_may_stand_before_or_after_command(
    command: Command,
) -> None:
    del command.environment["GPUSTEWARD_URL"]
    place = command.url.removeprefix("http://")

    before = await command("--url", place, "--token", "secret", "gpus")
    behind = await command("gpus", "--url", place)
    both = await command("--url", "127.0.0.1:1", "gpus", "--url", place)

    assert (before.code, behind.code, both.code) == (0, 0, 0)
    assert before.out == behind.out
    assert command.stub.tokens == ["Bearer secret", None, None]


async def test_why_no_platform_is_reached_is_told_apart(command: Command) -> None:
    place = command.url.removeprefix("http://")

    tls = await command("gpus", "--url", f"https://{place}")
    unknown = await command("gpus", "--url", "no-such-host.invalid:8470")
    closed = await command("gpus", "--url", "127.0.0.1:1")
    wrong = await command("gpus", "--url", "ftp://here")

    code = EXIT_CODE[ErrorCode.UNAVAILABLE]
    assert (tls.code, unknown.code, closed.code) == (code, code, code)
    assert f"https://{place} does not speak TLS" in tls.err
    assert f"try http://{place}" in tls.err
    assert "no host is called 'no-such-host.invalid'" in unknown.err
    assert closed.err.endswith("; start it with `gpusteward up`\n")
    assert all("gpusteward up" not in each.err for each in (tls, unknown))
    assert (wrong.code, "such as http://127.0.0.1:8470" in wrong.err) == (2, True)


async def test_names_work_like_ids(
    command: Command,
) -> None:
    task = make_task(task_name="tuning", state=TaskState.COMPLETED, experiments_total=1)
    experiment = make_experiment(3, task_id=task.task_id, task_name="tuning")
    command.stub.tasks, command.stub.experiments = [task], [experiment]

    shown = await command("show", "tuning")
    one = await command("why", "tuning#3")
    unknown = await command("cancel", "turning")

    assert short(experiment.experiment_id) in shown.out
    assert one.err == "gpusteward: it is succeeded and does not wait for GPUs\n"
    assert "has a name or an id like 'turning'" in unknown.err
