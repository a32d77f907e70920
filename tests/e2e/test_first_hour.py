"""A new user's first hour, at 80 columns and over HTTP, compared with approved output.

What is approved lies in `first_hour/`; `GPUSTEWARD_TEST_APPROVE=1` writes it anew, to be read
before it is committed. What differs from run to run (ids, times, readings) is replaced by a word.
"""

import json
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from shared.testing import run_apart, short_directory
from tests.support import wrong_inputs
from tests.support.paths import ROOT
from tests.support.processes.platform import PlatformProcess, marked_processes
from tests.support.processes.terminal import run_in_terminal

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

APPROVED = Path(__file__).parent / "first_hour"
EXAMPLES = ROOT / "schemas" / "examples"
COLUMNS = 80
CREATED = 201
MAX_LINES = 5

TASK = {
    "task_name": "first-hour",
    "deployment_mode": "process",
    "model": {"id_or_path": "simulated-model"},
    "base_runtime": "simulated",
    "parameters": {"tpot-seconds": [0.1, 0.05]},
    "optimization": {"strategy": "grid_search", "objective": "minimize_latency", "max_parallel": 2},
    "benchmark": {
        "traffic_scenarios": ["D(20,20)"],
        "num_concurrency": [2],
        "max_time_per_iteration": 1,
        "max_requests_per_iteration": 8,
        "tool": "builtin",
    },
}
FINISHED = ("", "")  # the task, before anything else is typed

BROKEN_TASK = '{\n  "task_name": "broken",\n  "parameters": {"slots": [1, 2]\n}\n'
UNKNOWN_FIELD = json.dumps({"task_name": "unknown", "parameterz": {}})

# (what it is for, command). `{name}` is what an earlier command's output was remembered as.
COMMANDS = (
    ("look around", "nodes"),
    ("", "gpus"),
    ("what would a task do", "validate {directory}/tune.json"),
    ("with a model that fits no GPU", "validate {directory}/large.json"),
    ("without a platform", "validate --data-dir {directory}/none {directory}/large.json"),
    ("what is wrong with it", "validate {directory}/broken.json"),
    ("", "submit {directory}/unknown-field.json"),
    ("hand it in, twice by mistake", "submit {directory}/tune.json"),
    ("", "submit {directory}/tune.json"),
    FINISHED,
    ("what came out", "tasks"),
    ("", "experiments"),
    ("", "show first-hour"),
    ("reserve by hand", "reserve --gpus 1 --holder ann  # held"),
    ("", "reservations --state granted"),
    ("too much", "reserve --gpus 3"),
    ("not now", "availability --gpus 2"),
    ("never", "availability --gpus 3 --wait 30"),
    ("wait in vain", "reserve --gpus 2 --holder bob --wait 1  # queued"),
    ("why", "why {queued}"),
    ("give it back", "release {held} --yes"),
    ("maintenance", "cordon alpha/0 --reason 'new fan'"),
    ("", "gpus"),
    ("", "nodes"),
    ("", "uncordon alpha/0"),
    ("is all well", "drift"),
    ("mistakes", "show nosuch"),
    ("", "gpus --nod alpha"),
    ("", "reserve --gpus none"),
    ("", "tasks --state done"),
    ("", "report usage --by persn"),
    ("", "reserve --gpus 1 --for"),
    ("", "login"),
    ("", "logs nosuch"),
)

# The same over HTTP: (what it is for, method, path, body).
REQUESTS: tuple[tuple[str, str, str, Any], ...] = (
    ("look around", "GET", "/api/v1/nodes", None),
    ("", "GET", "/api/v1/gpus", None),
    ("what is wrong with a task", "POST", "/api/v1/tasks", json.loads(UNKNOWN_FIELD)),
    ("what ran", "GET", "/api/v1/tasks", None),
    ("reserve", "POST", "/api/v1/reservations", {"request": {"gpus": 1}, "holder": "ann"}),
    ("too much", "POST", "/api/v1/reservations", {"request": {"gpus": 3}}),
    ("is anything free", "GET", "/api/v1/availability?gpus=2", None),
    ("never", "GET", "/api/v1/availability?gpus=3&wait_seconds=30", None),
    ("what is held", "GET", "/api/v1/reservations", None),
    ("mistakes", "GET", "/api/v1/gpus?nod=alpha", None),
    ("", "GET", "/api/v1/tasks?state=done", None),
    ("", "GET", "/api/v1/tasks/nosuch", None),
    ("", "GET", "/api/v1/reports/gpu-time?by=persn", None),
    ("", "POST", "/api/v1/reservations", {"requester": "a\nb"}),
    ("", "POST", "/api/v1/login", {"code": "used"}),
    ("", "POST", "/api/v1/reservations", {"request": {"gpus": "none"}}),
    ("", "GET", "/api/v2/tasks", None),
)

# In whole, or its end as tables show it; the GPUs of the fleet file keep theirs.
_ID = re.compile(r"(?<!GPU-)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<![-\w])[0-9a-f]{12}\b")
_VARYING = (
    (_ID, "<id>"),
    (re.compile(r"experiment/[0-9a-f]+(…|\b)"), "experiment/<id>"),
    (re.compile(r"\(by \w+"), "(by USER"),
    (re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+Z?"), "<time>"),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:PORT"),
    (re.compile(r"\b\d\d:\d\d(:\d\d)?\b"), "<time>"),
    (re.compile(r"\bfor \d+ (?:s|min)(?=\))"), "for <time>"),
    (re.compile(r"[\d.]+ GPU-(?:hours|seconds)"), "# GPU-seconds"),
    (re.compile(r"\b\d+(\.\d+)?( ?(?:ms|s|m|h|MB|W|Wh|%))(?!\w)"), r"#\2"),
    (re.compile(r"\b(?!127\.0)\d+\.\d+(?!\.)\b"), "#"),
    (re.compile(r"\b\d+/\d+/\d+\b"), "#/#/#"),
    (re.compile(r"(?<=^used: )[\d.]+", re.MULTILINE), "#"),
)
_READING = re.compile(r'("(?:temperature|power|energy|age|clock|epoch|revision)\w*": )\d+')


@dataclass
class Hour:
    """A platform with one simulated node, and what its user has typed so far."""

    platform: PlatformProcess
    directory: Path
    remembered: dict[str, str] = field(default_factory=dict)

    async def type(self, line: str) -> tuple[int, str]:
        """The exit code and the screen. Remembers the last id of the output under `# name`."""
        line, _, name = line.partition("  # ")
        places = {"directory": str(self.directory), **self.remembered}
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GPUSTEWARD_")}
        code, screen = await run_in_terminal(
            *shlex.split(line.format(**places)),
            columns=COLUMNS,
            environment={
                **environment,
                "PYTHONPATH": str(ROOT),
                "TERM": "xterm",
                "LOGNAME": "ada",
                "GPUSTEWARD_DATA_DIR": str(self.platform.data_dir),
            },
        )
        if name:
            self.remembered[name] = _ID.findall(screen)[0]
        return code, screen.replace(str(self.directory), "DIRECTORY")


@pytest.fixture(scope="module")
def hour() -> Iterator[Hour]:
    with short_directory() as directory:
        platform = PlatformProcess(
            directory / "data",
            arguments=("--fleet", str(EXAMPLES / "fleet.toml"), "--node-id", "alpha"),
            # The same on machines on which an engine runs and on those on which none does.
            environment={"GPUSTEWARD_EXECUTOR_DOCKER_HOST": "unix:///nowhere/docker.sock"},
        )
        (directory / "tune.json").write_text(json.dumps(TASK))
        (directory / "large.json").write_text(json.dumps({**TASK, "model": "org/m-405b"}))
        (directory / "broken.json").write_text(BROKEN_TASK)
        (directory / "unknown-field.json").write_text(UNKNOWN_FIELD)
        try:
            run_apart(platform.start())
            installation = str(platform.directory.installation_id())
            yield Hour(platform, directory)
        finally:
            run_apart(platform.stop())
        assert marked_processes(installation) == []


async def test_the_command_line_says_what_was_approved(hour: Hour) -> None:
    written = []
    for purpose, line in COMMANDS:
        if (purpose, line) == FINISHED:
            _, listed = await hour.platform.request("GET", "/api/v1/tasks")
            await hour.platform.until_finished(listed["tasks"][0]["task_id"])
            continue
        code, screen = await hour.type(line)
        if purpose:
            written.append(f"# {purpose}")
        shown = line.partition("  # ")[0].format_map(_Placeholders())
        written += [f"$ gpusteward {shown}", constant(screen), f"[exit {code}]", ""]
        assert "Traceback" not in screen
        assert max(map(len, screen.splitlines()), default=0) <= COLUMNS or _is_prose(screen)
    compare("command-line.txt", "\n".join(written))


async def test_http_says_what_was_approved(hour: Hour) -> None:
    written = []
    for purpose, method, path, body in REQUESTS:
        status, answer = await hour.platform.request(method, path, body)
        if purpose:
            written.append(f"# {purpose}")
        written += [f"{method} {path}", *([json.dumps(body)] if body else []), str(status)]
        if status == CREATED:  # whether it is decided yet differs from run to run
            path = f"/api/v1/reservations/{answer['reservation_id']}?wait_seconds=10"
            status, answer = await hour.platform.request("GET", path)
            written += [constant(f"GET {path}"), str(status)]
        written += [constant(json.dumps(first_of_each(answer), indent=1, ensure_ascii=False)), ""]
    compare("http.txt", "\n".join(written))


async def test_wrong_input_says_what_was_approved(hour: Hour) -> None:
    """Each answer is a refusal of at most five lines."""
    wrong_inputs.write_files(hour.directory)
    written = []
    for line in wrong_inputs.LINES:
        code, screen = await hour.type(line)
        shown = line.format_map(_Placeholders())
        written += [f"$ gpusteward {shown}", constant(screen), f"[exit {code}]", ""]
        assert "Traceback" not in screen
    too_long = [answer for answer in written if answer.count("\n") >= MAX_LINES]
    compare("wrong-inputs.txt", "\n".join(written))
    assert too_long == []
    assert "[exit 0]" not in written


class _Placeholders(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return key.upper()


def _is_prose(screen: str) -> bool:
    """A terminal breaks sentences itself; a table is never wider than it."""
    wide = (line for line in screen.splitlines() if len(line) > COLUMNS)
    return not any(re.search(r"\S {3,}\S", line) for line in wide)


def first_of_each(answer: Any) -> Any:
    """With one item of each list, which shows what the others look like."""
    if isinstance(answer, dict):
        return {key: first_of_each(value) for key, value in answer.items()}
    return [first_of_each(item) for item in answer[:1]] if isinstance(answer, list) else answer


def constant(text: str) -> str:
    """With a word for whatever differs from run to run, and columns two blanks apart."""
    for pattern, word in _VARYING:
        text = pattern.sub(word, text)
    return "\n".join(
        re.sub(r" {2,}", "  ", _without_readings(line)).rstrip() for line in text.splitlines()
    )


def _without_readings(line: str) -> str:
    if line.startswith("alpha ") or "Simulated H200" in line:
        return re.sub(r"\b\d{2,}\b", "#", line)
    return re.sub(
        r'("(?:temperature|power|energy|age|clock|epoch|revision)\w*": )\d+', r"\1#", line
    )


def compare(name: str, text: str) -> None:
    path = APPROVED / name
    if os.environ.get("GPUSTEWARD_TEST_APPROVE"):
        path.write_text(text)
    assert text == path.read_text(), f"{path.relative_to(ROOT)} was approved otherwise"
