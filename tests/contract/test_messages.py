"""What may never change about a message: its old bytes, its subject, the stream that keeps it."""

import ast
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct
from msgspec.structs import replace

from schemas import catalog
from schemas.backlog import Backlog, GetBacklog
from schemas.base import (
    Command,
    Kind,
    Message,
    Query,
    pattern_for,
    sender_subject,
    subject_for,
    tag_of,
)
from schemas.cluster import node_selection
from schemas.cluster import nodes as cluster
from schemas.executor import attempts as executor
from schemas.executor import engine_samples
from schemas.executor import logs as executor_logs
from schemas.executor import ranks as executor_ranks
from schemas.executor import running as executor_running
from schemas.executor import servers as executor_servers
from schemas.gateway import datasets
from schemas.gateway import views as gateway
from schemas.gpus import available_gpus, mig
from schemas.orchestrator import deletion, leaders, presets, secrets, uploads
from schemas.orchestrator import experiments as orchestrator
from schemas.orchestrator import views as orchestrator_views
from schemas.results import engine_metrics, prices, reports, series
from schemas.results import measurements as results
from schemas.scheduler import devices as scheduler_devices
from schemas.scheduler import drifts as scheduler_drifts
from schemas.scheduler import idle as scheduler_idle
from schemas.scheduler import namespaces as scheduler_namespaces
from schemas.scheduler import nodes as scheduler_nodes
from schemas.scheduler import policy as scheduler_policy
from schemas.scheduler import reservations as scheduler
from schemas.scheduler import views as scheduler_views
from schemas.telemetry import monitoring
from schemas.telemetry import readings as telemetry
from schemas.telemetry.monitoring import GpuDetail
from schemas.telemetry.readings import GetSnapshot
from shared.messaging.permissions import CONSUMERS
from shared.messaging.streams import STREAMS
from tests.contract import make_golden
from tests.contract.make_golden import DIRECTORY, covered, golden_name, make
from tests.support.paths import ROOT
from tests.support.tables import for_each

MAKE = "python -m tests.contract.make_golden"
OWNERS = {
    telemetry: "telemetry",
    mig: "telemetry",
    engine_samples: "telemetry",
    monitoring: "telemetry",
    scheduler: "scheduler",
    scheduler_devices: "scheduler",
    scheduler_drifts: "scheduler",
    scheduler_nodes: "scheduler",
    scheduler_idle: "scheduler",
    scheduler_namespaces: "scheduler",
    node_selection: "scheduler",
    scheduler_policy: "scheduler",
    scheduler_views: "scheduler",
    available_gpus: "scheduler",
    cluster: "cluster",
    orchestrator: "orchestrator",
    orchestrator_views: "orchestrator",
    deletion: "orchestrator",
    leaders: "orchestrator",
    presets: "orchestrator",
    secrets: "orchestrator",
    uploads: "orchestrator",
    executor: "executor",
    executor_logs: "executor",
    executor_servers: "executor",
    executor_ranks: "executor",
    executor_running: "executor",
    prices: "results",
    reports: "results",
    series: "results",
    results: "results",
    engine_metrics: "results",
    gateway: "gateway",
    datasets: "gateway",
}

every_type = for_each("name", covered())
every_message = for_each("cls", catalog.MESSAGES, name=tag_of)


def golden_bytes(name: str, suffix: str) -> bytes:
    path = DIRECTORY / f"{name}.{suffix}"
    if not path.is_file():
        pytest.fail(f"{name} has no golden {suffix} file: make it with `{MAKE}` and commit it")
    return path.read_bytes()


def loses(now: Any, before: Any, *, appended: bool = False) -> str | None:
    """Where `now` lacks or changes something of `before`; new keys of objects are no loss."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key, value in before.items():
            if key not in now:
                return f".{key} is gone"
            if place := loses(now[key], value, appended=appended):
                return f".{key}{place}"
        return None
    if isinstance(before, list) and isinstance(now, list):
        if len(now) < len(before) or (len(now) > len(before) and not appended):
            return f" has {len(now)} items, had {len(before)}"
        places = [loses(new, old, appended=appended) for new, old in zip(now, before, strict=False)]
        return next((f"[{i}]{place}" for i, place in enumerate(places) if place), None)
    return None if now == before else f" is {now!r}, was {before!r}"


@every_type
def test_old_bytes_decode_to_their_message(name: str) -> None:
    cls = covered()[name]

    from_msgpack = msgspec.msgpack.decode(golden_bytes(name, "msgpack"), type=cls)
    from_json = msgspec.json.decode(golden_bytes(name, "json"), type=cls)

    assert from_msgpack == from_json


@every_type
def test_a_message_sent_again_still_says_everything(name: str) -> None:
    cls = covered()[name]
    before = msgspec.json.decode(golden_bytes(name, "json"))
    message = msgspec.msgpack.decode(golden_bytes(name, "msgpack"), type=cls)

    now = msgspec.json.decode(msgspec.json.encode(message))

    # The reading in a GpuDetail is an array.
    appended = cls is GpuDetail or cls.__struct_config__.array_like
    assert loses(now, before, appended=appended) is None
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=cls) == message


@every_type
def test_a_field_of_a_newer_release_is_ignored(name: str) -> None:
    cls = covered()[name]
    body = msgspec.msgpack.decode(golden_bytes(name, "msgpack"))
    if isinstance(body, dict):
        body["field_of_a_newer_release"] = {"nested": [1, 2]}
    else:
        body.append({"nested": [1, 2]})

    message = msgspec.msgpack.decode(msgspec.msgpack.encode(body), type=cls)

    assert message == msgspec.msgpack.decode(golden_bytes(name, "msgpack"), type=cls)


def test_every_golden_file_belongs_to_a_type() -> None:
    expected = {f"{name}.{suffix}" for name in covered() for suffix in ("msgpack", "json")}

    assert {path.name for path in DIRECTORY.iterdir()} - expected == set()


def test_a_missing_golden_file_says_how_to_make_it() -> None:
    with pytest.raises(pytest.fail.Exception, match=MAKE):
        golden_bytes("scheduler.never_made", "json")


def test_golden_files_are_written_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shutil.copytree(DIRECTORY, tmp_path / "golden")
    monkeypatch.setattr(make_golden, "DIRECTORY", tmp_path / "golden")
    old, gone = tmp_path / "golden" / "accepted.json", tmp_path / "golden" / "refused"
    old.write_text("{}")
    for suffix in (".json", ".msgpack"):
        gone.with_suffix(suffix).unlink()

    assert make_golden.main() == 0

    assert old.read_text() == "{}"
    for suffix in (".json", ".msgpack"):
        assert (
            gone.with_suffix(suffix).read_bytes() == (DIRECTORY / f"refused{suffix}").read_bytes()
        )


@every_message
def test_a_subject_is_made_of_product_kind_and_tag(cls: type[Message]) -> None:
    message = make(cls)
    assert isinstance(message, Message)
    owner, what = tag_of(cls).split(".")

    subject = subject_for(message)

    tokens = subject.split(".")
    assert tokens[:4] == ["gpusteward", cls.kind.value, owner, what]
    own = [str(getattr(message, field)) for field in (cls.speaker_field, cls.key_field) if field]
    if isinstance(message, Command):
        unsigned = subject_for(replace(message, sender=""))
        assert subject == sender_subject(unsigned, message.sender)
        subject, tokens = unsigned, unsigned.split(".")
    assert tokens[4:] == own
    assert len(subject) <= 256
    assert captures(pattern_for(cls), subject)


@every_message
def test_message_is_in_the_module_of_its_tag(cls: type[Message]) -> None:
    if issubclass(cls, GetBacklog):
        return  # asked of every service alike
    assert OWNERS[sys.modules[cls.__module__]] == tag_of(cls).split(".")[0]


def test_tags_are_unique() -> None:
    tags = [golden_name(cls) for cls in covered().values()]

    assert len(tags) == len(set(tags)) == len(covered())


def test_commands_have_ids_events_revisions() -> None:
    assert [c for c in catalog.COMMANDS if "command_id" not in c.__struct_fields__] == []
    for field in ("message_id", "occurred_at", "revision"):
        assert [e for e in catalog.EVENTS if field not in e.__struct_fields__] == []


def test_the_key_of_a_subject_is_a_required_field() -> None:
    for cls in catalog.MESSAGES:
        if cls.key_field is None:
            continue
        field = next(f for f in msgspec.structs.fields(cls) if f.name == cls.key_field)
        assert field.required, f"{tag_of(cls)} may be sent without {cls.key_field}"


def test_every_query_has_an_answer_and_says_which() -> None:
    assert set(catalog.REPLIES) == set(catalog.QUERIES)
    for query, view in catalog.REPLIES.items():
        assert f"`{view.__name__}`" in (query.__doc__ or ""), f"{query.__name__} names no answer"


def test_an_answer_is_told_from_a_refusal() -> None:
    for view in set(catalog.REPLIES.values()):
        assert view.__struct_config__.tag not in (None, "refused", "accepted")


@every_message
def test_only_events_are_kept_by_one_stream(cls: type[Message]) -> None:
    message = make(cls)
    assert isinstance(message, Message)
    subject = subject_for(message)

    keeping = [s.name for s in STREAMS if any(captures(p, subject) for p in s.subjects or ())]

    assert len(keeping) == (1 if cls.kind is Kind.EVENT else 0), f"{subject} is kept by {keeping}"


@pytest.mark.parametrize("node_id", ["node.example.org", "", "a b", "*", ">", "n" * 129, "knöten"])
def test_a_key_that_is_no_token_is_refused(node_id: str) -> None:
    with pytest.raises(ValueError, match="expected a subject token"):
        subject_for(GetSnapshot(node_id=node_id))


def test_durable_names_are_prefixed_and_unique() -> None:
    names: list[str] = []
    for path in sorted((ROOT / "services").rglob("*.py")):
        service = path.relative_to(ROOT / "services").parts[0]
        for name in durables_of(path):
            assert name.startswith(f"{service}_"), f"{path}: {name}"
            names.append(name)

    assert len(names) == len(set(names))
    permitted = {each for of in CONSUMERS.values() for named in of.values() for each in named}
    assert permitted == {*names, "results_store_samples", "results_store_engine_samples"}


def durables_of(path: Path) -> Iterator[str]:
    """The durable names that a module gives to the bus. Fails where one cannot be read."""
    text = path.read_text()
    if "durable=" not in text and "consume_samples(" not in text:
        return
    tree = ast.parse(text)
    constants = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    named: set[str] = set()
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        given = [keyword.value for keyword in call.keywords if keyword.arg == "durable"]
        if isinstance(call.func, ast.Attribute) and call.func.attr == "consume_samples":
            given += call.args[:1]
        for value in given:
            if isinstance(value, ast.Name):
                if value.id in named:
                    continue
                named.add(value.id)
            known = constants.get(value.id) if isinstance(value, ast.Name) else value
            assert isinstance(known, ast.Constant), (
                f"{path}:{call.lineno}: write the durable's name"
            )
            assert isinstance(known.value, str)
            yield known.value


def captures(pattern: str, subject: str) -> bool:
    """Whether a subject filter with `*` and `>` takes a subject in."""
    wanted, tokens = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted, tokens = wanted[:-1], tokens[: len(wanted) - 1]
        if len(subject.split(".")) <= len(wanted):
            return False
    return len(wanted) == len(tokens) and all(
        want in ("*", token) for want, token in zip(wanted, tokens, strict=True)
    )


@for_each("view", catalog.REPLIES.values(), name=lambda view: view.__name__)
def test_a_view_belongs_to_the_owner_that_is_asked(view: type[Struct]) -> None:
    asked: list[type[Query]] = [query for query, reply in catalog.REPLIES.items() if reply is view]

    if view is Backlog:
        assert all(issubclass(query, GetBacklog) for query in asked)
        return
    assert {golden_name(view).split(".")[0]} == {tag_of(query).split(".")[0] for query in asked}
