"""What the pages name is there: links, files, commands, settings, subjects, log events, rings."""

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from schemas.base import pattern_for
from schemas.catalog import MESSAGES
from schemas.scheduler.drifts import DriftKind
from services.cli.command_line import cli
from services.cluster.settings import ClusterSettings
from services.executor.settings import ExecutorSettings
from services.gateway.settings import GatewaySettings
from services.orchestrator.settings import OrchestratorSettings
from services.results.settings import ResultsSettings
from services.scheduler.settings import SchedulerSettings
from services.telemetry.settings import TelemetrySettings
from shared.settings import CommonSettings
from tests.support.paths import ROOT

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = ("services", "shared", "schemas", "tests", "docs", ".ci")
SETTINGS: dict[str, type[CommonSettings]] = {
    "CLUSTER_": ClusterSettings,
    "EXECUTOR_": ExecutorSettings,
    "GATEWAY_": GatewaySettings,
    "ORCHESTRATOR_": OrchestratorSettings,
    "RESULTS_": ResultsSettings,
    "SCHEDULER_": SchedulerSettings,
    "TELEMETRY_": TelemetrySettings,
}
LINK = re.compile(r"\[[^\]\n]+\]\((?!https?:)([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
BLOCK = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"\bgpusteward ([a-z][a-z-]*(?: [a-z][a-z-]*)?)")
VARIABLE = re.compile(r"\bGPUSTEWARD_[A-Z][A-Z_]*[A-Z]\b")
SUBJECT = re.compile(r"\b(?:gpusteward\.)?((?:evt|cmd|rpc|live)\.[a-z]+\.[a-z_{},]*[a-z_}])")
PATH = re.compile(rf"(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./-]*")

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@cache
def text_of(page: Path) -> str:
    return page.read_text()


def prose_of(page: Path) -> str:
    return BLOCK.sub("", text_of(page))


def anchors_of(page: Path) -> set[str]:
    """The anchors that a forge makes of the headings."""
    headings = re.findall(r"^#+ (.+)$", prose_of(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}


@cache
def sources(*folders: str) -> str:
    files = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return "\n".join([(ROOT / "Makefile").read_text(), *map(Path.read_text, files)])


def spelled_out(subject: str) -> Iterator[str]:
    """`evt.a.b_{c,d}` as two; a key's place as `*`."""
    if (found := re.search(r"\{([a-z_]+(?:,[a-z_]+)+)\}", subject)) is None:
        yield re.sub(r"\{\w+\}", "*", subject)
        return
    for each in found[1].split(","):
        yield from spelled_out(subject.replace(found[0], each, 1))


@every_page
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for link in LINK.findall(prose_of(page)):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), f"{page.name} links to {link}"
        assert not anchor or anchor in anchors_of(target), f"{page.name} links to {link}"


@every_page
def test_every_file_that_is_named_is_there(page: Path) -> None:
    missing = [
        code
        for code in CODE.findall(prose_of(page))
        if PATH.fullmatch(code) and not (ROOT / code).exists()
    ]

    assert missing == []


@every_page
def test_every_command_that_is_named_is_there(page: Path) -> None:
    text = text_of(page)
    code = "\n".join([*CODE.findall(text), *BLOCK.findall(text)])

    for words in set(COMMAND.findall(code)):
        name, _, second = words.partition(" ")
        assert name in cli.commands, f"{page.name} names `gpusteward {name}`"
        command = cli.commands[name]
        if isinstance(command, click.Group) and second:
            assert second in command.commands or name == "bench", words


@every_page
def test_every_named_setting_is_read(page: Path) -> None:
    known = {f"GPUSTEWARD_{field.upper()}" for field in CommonSettings.__struct_fields__} | {
        f"GPUSTEWARD_{prefix}{field.upper()}"
        for prefix, cls in SETTINGS.items()
        for field in cls.__struct_fields__
    }
    named = set(VARIABLE.findall(text_of(page)))

    assert {
        each for each in named - known if each not in sources("services", "shared", "tests")
    } == set()


@every_page
def test_every_subject_that_is_named_is_a_messages(page: Path) -> None:
    known = {pattern_for(message).removeprefix("gpusteward.") for message in MESSAGES}
    named = {
        one
        for code in CODE.findall(prose_of(page))
        for subject in SUBJECT.findall(code)
        for one in spelled_out(subject)
    }

    assert {each for each in named if not {each, f"{each}.*", f"{each}.*.*"} & known} == set()


def test_the_log_events_to_watch_are_logged() -> None:
    page = text_of(ROOT / "docs" / "reference" / "log-events.md")
    rows = page[page.index("| event | what it says |") :].split("\n\n", 1)[0].splitlines()[2:]

    events = [event for row in rows for event in CODE.findall(row.split("|")[1])]

    assert [event for event in events if f'"{event}"' not in sources("services", "shared")] == []
    assert events


def test_every_kind_of_drift_has_its_row() -> None:
    page = text_of(ROOT / "docs" / "reference" / "drifts.md")

    rows = re.findall(r"^\| `(\w+)` \|.*\d+ s", page, re.MULTILINE)

    assert sorted(rows) == sorted(DriftKind)


def test_documented_rings_match_the_contracts() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    page = text_of(ROOT / "docs" / "explanation" / "architecture.md")

    for contract in contracts["contracts"]:
        for place in contract.get("containers", ()):
            rings = " → ".join(
                ", ".join(f"`{module.strip()}`" for module in ring.split("|"))
                for ring in contract["layers"]
            )
            assert f"| `{place.replace('.', '/')}/` | {rings} |" in page
