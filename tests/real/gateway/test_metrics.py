"""The platform's metrics as Prometheus reads them, and the alerts and panels that rest on them."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from schemas.backlog import BACKLOG_OF, Backlog, GetExecutorBacklog
from schemas.base import subject_for
from schemas.executor.attempts import ExecutorReported
from schemas.scheduler.namespaces import ListNamespaces, NamespaceList, NamespaceUse
from schemas.scheduler.reservations import ReservationGranted
from schemas.scheduler.views import DriftList, ListDrifts
from services.telemetry.metrics.dcgm_names import FIELDS
from services.telemetry.metrics.pod_families import FAMILIES
from shared.clock import utcnow
from shared.ids import new_id
from shared.messaging.codec import encode
from shared.testing import eventually
from tests.support.worlds.gateway import (
    Api,
    gateway,
    make_drift,
    make_queued,
    make_released,
)

COMPOSE: Final = Path(__file__).parents[3] / "compose"
NAME: Final = re.compile(r"\b(?:gpusteward|DCGM)_\w+")
OF_AGENTS: Final = {
    "gpusteward_gpu_xid_errors_total",
    *(each.name for each in (*FIELDS, *FAMILIES)),
}

Samples = dict[str, list[tuple[dict[str, str], float]]]


async def scrape(api: Api) -> Samples:
    _, text = await api.get("/metrics")
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        found.setdefault(family.name, [])
        for sample in family.samples:
            found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return found


def make_granted(waited_seconds: float, **overrides: Any) -> ReservationGranted:
    queued = make_queued(holder="x")
    fields = {name: getattr(queued, name) for name in ("message_id", "occurred_at", "revision")}
    return ReservationGranted(
        **fields,
        reservation_id=new_id(),
        namespace="metered",
        holder="x",
        epoch=1,
        node_id="n",
        devices=(),
        lease_ttl_seconds=30.0,
        waited_seconds=waited_seconds,
        **overrides,
    )


def make_reported(executor_id: str) -> ExecutorReported:
    return ExecutorReported(
        message_id=new_id(),
        occurred_at=utcnow(),
        revision=1,
        executor_id=executor_id,
        boot_id=new_id(),
        runtimes=(),
        benchmark_tools=(),
        largest_epoch=0,
    )


async def test_metrics_count_queue_waits_and_requests(nats_url: str, postgres_dsn: str) -> None:
    uses = (NamespaceUse(namespace="metered", gpus=3.5, gpu_limit=8.0, queued=4),)
    events = [
        replace(make_queued(holder="x"), namespace="metered"),
        make_granted(2.0),
        make_granted(70.0),
    ]
    async with gateway(nats_url, postgres_dsn) as api:
        silent = await scrape(api)
        await api.owners.answer(ListNamespaces, NamespaceList(namespaces=uses))
        await api.owners.answer(ListDrifts, DriftList(drifts=(make_drift(),)))
        for query in BACKLOG_OF.values():
            await api.owners.answer(query, Backlog(outbox_age_seconds=7.0))
        await api.owners.answer(GetExecutorBacklog, Backlog(outbox_age_seconds=120.0))
        await api.owners.publish(make_reported("beta"))
        await api.get("/api/v1/tasks/none")
        await api.get("/nowhere/at/all")
        for event in (*events, replace(make_released(holder="x"), namespace="metered")):
            await api.owners.client.jetstream().publish(subject_for(event), encode(event))

        async def are_counted() -> bool:
            seen = await scrape(api)
            granted = seen.get("gpusteward_reservations_granted_total", [])
            nodes = {labels.get("node") for labels, _ in seen["gpusteward_outbox_age_seconds"]}
            return ({"namespace": "metered"}, 2.0) in granted and "beta" in nodes

        await eventually(are_counted, within_seconds=60, what="two grants and an executor")
        found = await scrape(api)

    of = {"namespace": "metered"}
    assert silent["gpusteward_scheduler_answers"] == [({}, 0.0)]
    assert "gpusteward_queue_length" not in silent
    assert found["gpusteward_scheduler_answers"] == [({}, 1.0)]
    assert found["gpusteward_queue_length"] == [(of, 4.0)]
    assert found["gpusteward_gpus_held"] == [(of, 3.5)]
    assert found["gpusteward_drifts"] == [({"kind": "squatter"}, 1.0)]
    assert (of, 1.0) in found["gpusteward_reservations_queued_total"]
    buckets = found["gpusteward_reservation_wait_seconds_bucket"]
    waits = {labels["le"]: value for labels, value in buckets if labels["namespace"] == "metered"}
    assert (waits["1.0"], waits["5.0"], waits["300.0"]) == (0.0, 1.0, 2.0)
    assert "gateway_event_log" in {
        labels["consumer"] for labels, _ in found["gpusteward_consumer_lag_messages"]
    }
    ages = {
        (labels["service"], labels.get("node")): age
        for labels, age in found["gpusteward_outbox_age_seconds"]
    }
    assert ages.pop(("gateway", None)) >= 0.0
    assert ages.pop(("executor", "beta")) == 120.0
    assert ages == {(name, None): 7.0 for name in BACKLOG_OF}
    routes = {
        (labels["route"], labels["status"])
        for labels, _ in found["gpusteward_http_request_seconds_count"]
    }
    assert ("/{place}", "404") in routes
    assert not any("nowhere" in route for route, _ in routes)
    named = set(NAME.findall((COMPOSE / "prometheus" / "alerts.yml").read_text()))
    named |= set(NAME.findall((COMPOSE / "grafana" / "gpusteward.json").read_text()))
    exposed = {*found, *(f"{name}_total" for name in found)}  # a counter of nothing has no sample
    assert named - exposed - OF_AGENTS == set()


def test_alerts_fire_on_their_conditions() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("the alerts are tested by promtool (Debian: prometheus)")

    for command in ("check rules alerts.yml", "test rules alerts_test.yml"):
        done = subprocess.run(
            [promtool, *command.split()],
            cwd=COMPOSE / "prometheus",
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_dashboard_queries_are_valid_for_any_choice(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("expressions are read by promtool (Debian: prometheus)")
    board = json.loads((COMPOSE / "grafana" / "gpusteward.json").read_text())
    chosen = {"$__rate_interval": "5m", "$node": ".*", "$kind": "mig|mps", "$namespace": "serving"}
    expressions = [
        target["expr"] for panel in board["panels"] for target in panel.get("targets", ())
    ]
    for variable, value in {**chosen, "$pod": "llama-0"}.items():
        expressions = [expression.replace(variable, value) for expression in expressions]
    rules = [{"record": f"panel_{n}", "expr": each} for n, each in enumerate(expressions)]
    (tmp_path / "rules.yml").write_text(
        yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]})
    )

    done = subprocess.run(
        [promtool, "check", "rules", "rules.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert not [expression for expression in expressions if "$" in expression]


def test_dashboard_has_node_pod_and_type_variables() -> None:
    board = json.loads((COMPOSE / "grafana" / "gpusteward.json").read_text())

    variables = {each["name"] for each in board["templating"]["list"]}
    rows = [panel["title"] for panel in board["panels"] if panel["type"] == "row"]
    of_pods = [
        target["expr"]
        for panel in board["panels"]
        for target in panel.get("targets", ())
        if "gpusteward_pod_gpu" in target["expr"]
    ]
    assert variables == {"source", "node", "kind", "namespace", "pod"}
    assert rows == ["Node monitoring", "Pod monitoring", "Platform"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for name in ("$node", "$kind", "$namespace", "$pod"):
        assert all(name in expression for expression in of_pods)


def test_every_alert_and_panel_is_covered() -> None:
    rules = yaml.safe_load((COMPOSE / "prometheus" / "alerts.yml").read_text())
    tests = yaml.safe_load((COMPOSE / "prometheus" / "alerts_test.yml").read_text())
    board = json.loads((COMPOSE / "grafana" / "gpusteward.json").read_text())

    raised = {
        case["alertname"]
        for each in tests["tests"]
        for case in each["alert_rule_test"]
        if case["exp_alerts"]
    }
    assert raised == {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    assert all(target["expr"] for panel in board["panels"] for target in panel["targets"])
