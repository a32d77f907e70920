"""Who sees what: every route has a rule, on a real Postgres and bus."""

from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

from msgspec.structs import replace

from schemas.base import subject_for
from schemas.executor.attempts import AttemptPhase, AttemptProgressed
from schemas.gateway.endpoints import ENDPOINTS
from schemas.gateway.tokens import Role
from schemas.orchestrator.views import (
    ExperimentList,
    GetExperiment,
    GetTask,
    ListExperiments,
    ListTasks,
)
from schemas.results.series import GetSeries, ListPods, PodList, SeriesMetric, SeriesView
from schemas.scheduler.namespaces import ListNamespaces, NamespaceList, NamespaceUse
from schemas.scheduler.views import (
    DriftList,
    GetAllocationMap,
    GetReservation,
    ListDrifts,
    ListReservations,
    ReservationList,
)
from shared.messaging.codec import encode
from tests.real.gateway.test_tokens import Caller, admins
from tests.support.worlds.gateway import (
    NODE,
    logged,
    make_allocation_map,
    make_drift,
    make_experiment_view,
    make_reservation_view,
    make_sample,
    make_task_started,
    make_task_view,
)

# Who may use a route: everybody with a token (of what is the fleet's, or asks no more than the
# caller says), those who see or change the namespace of what it names, or admins.
FLEET: Final = "fleet"
LISTED: Final = "listed by namespace"
NAMED: Final = "named, of a namespace"
OWN: Final = "made in a namespace"
ADMIN: Final = "admin"
RULES: Final = {
    "GET /me": FLEET,
    "POST /login": FLEET,
    "POST /join": FLEET,
    "POST /login/links": FLEET,
    "POST /logout": FLEET,
    "POST /checks": FLEET,
    "POST /estimate": FLEET,
    "GET /availability": FLEET,
    "POST /availability": FLEET,
    "POST /tasks/validate": FLEET,
    "GET /select-node": FLEET,
    "POST /select-node": FLEET,
    "GET /gpus": FLEET,
    "GET /nodes": FLEET,
    "GET /nodes/{node_id}": FLEET,
    "GET /nodes/{node_id}/agent": FLEET,
    "GET /nodes/{node_id}/available-gpus": FLEET,
    "GET /nodes/{node_id}/gpu-alloc-map": FLEET,
    "GET /nodes/{node_id}/gpus/{index}": FLEET,
    "GET /cluster/gpus": FLEET,
    "GET /cluster/nodes": FLEET,
    "GET /cluster/devices": FLEET,
    "GET /drifts": FLEET,
    "GET /series": FLEET,
    "GET /pods": LISTED,
    "GET /namespaces": FLEET,
    "GET /reports/usage": FLEET,
    "GET /events": FLEET,
    "GET /imports": FLEET,
    "GET /tasks": LISTED,
    "GET /experiments": LISTED,
    "GET /reservations": LISTED,
    "GET /presets": LISTED,
    "GET /presets/{preset_name}": LISTED,
    "POST /presets": LISTED,
    "POST /presets/{preset_name}": LISTED,
    "POST /merged-presets": LISTED,
    "DELETE /presets/{preset_name}": LISTED,
    "GET /secrets": LISTED,
    "POST /secrets/{secret_name}": LISTED,
    "DELETE /secrets/{secret_name}": LISTED,
    "GET /reports/gpu-time": LISTED,
    "GET /reports/waste": LISTED,
    "GET /reports/waits": LISTED,
    "GET /reports/failures": LISTED,
    "GET /reports/idle": LISTED,
    "GET /tasks/{task_id}": NAMED,
    "GET /tasks/{task_id}/experiments": NAMED,
    "GET /tasks/{task_id}/summaries": NAMED,
    "GET /tasks/{task_id}/export": NAMED,
    "POST /tasks/{task_id}/cancel": NAMED,
    "POST /tasks/{task_id}/pause": NAMED,
    "POST /tasks/{task_id}/resume": NAMED,
    "DELETE /tasks/{task_id}": NAMED,
    "GET /experiments/{experiment_id}": NAMED,
    "GET /experiments/{experiment_id}/logs": NAMED,
    "GET /experiments/{experiment_id}/export": NAMED,
    "GET /experiments/{experiment_id}/requests": NAMED,
    "GET /experiments/{experiment_id}/engine": NAMED,
    "DELETE /experiments/{experiment_id}": NAMED,
    "GET /reservations/{reservation_id}": NAMED,
    "GET /reservations/{reservation_id}/explain": NAMED,
    "POST /reservations/{reservation_id}/what-if": NAMED,
    "POST /reservations/{reservation_id}/renew": NAMED,
    "DELETE /reservations/{reservation_id}": NAMED,
    "POST /reservations/{reservation_id}/idle-exemption": NAMED,
    "GET /reports/waterfall/{subject_id}": NAMED,
    "GET /reports/tasks/{task_id}": NAMED,
    "GET /reports/tasks/{task_id}/markdown": NAMED,
    "POST /tasks": OWN,
    "POST /reservations": OWN,
    "POST /events": OWN,
    "POST /imports": OWN,
    "POST /nodes/{node_id}/monitoring": OWN,
    "DELETE /nodes/{node_id}/monitoring/{monitoring_id}": OWN,
    "POST /nodes/{node_id}/burst": OWN,
    "POST /nodes/{node_id}/power-limit": OWN,
    "DELETE /nodes/{node_id}": ADMIN,
    "POST /nodes/{node_id}/cordon": ADMIN,
    "POST /nodes/{node_id}/uncordon": ADMIN,
    "POST /nodes/{node_id}/drain": ADMIN,
    "POST /nodes/{node_id}/admit": ADMIN,
    "POST /nodes/{node_id}/invite": ADMIN,
    "POST /nodes/{node_id}/labels": ADMIN,
    "POST /namespaces/{namespace}": ADMIN,
    "GET /decisions": ADMIN,
    "GET /decisions/replay": ADMIN,
    "GET /decisions/what-if-policy": ADMIN,
    "POST /tokens": ADMIN,
    "GET /tokens": ADMIN,
    "DELETE /tokens/{token_id}": ADMIN,
    "GET /audit": ADMIN,
    "GET /audit/export": ADMIN,
    "POST /secret-key/rotate": ADMIN,
}
BODIES: Final[dict[str, Any]] = {
    "POST /tasks": {"task_name": "t", "base_runtime": "llama.cpp", "model": {"id_or_path": "m"}},
    "POST /presets": {"presets": [{"name": "p", "parameters": {"slots": [1]}}]},
    "POST /presets/{preset_name}": {"parameters": {"slots": [1]}},
    "POST /merged-presets": {"presets": ["p"]},
    "POST /secrets/{secret_name}": {"value": "v"},
    "POST /reservations": {"holder": "x", "request": {"gpus": 1}},
    "POST /reservations/{reservation_id}/renew": {"epoch": 1},
    "POST /reservations/{reservation_id}/what-if": {"gpus": 1},
    "POST /reservations/{reservation_id}/idle-exemption": {
        "until_at": "2030-01-01T00:00:00Z",
        "reason": "debugging",
    },
    "POST /events": {"name": "deploy"},
    "POST /nodes/{node_id}/labels": {"labels": {"zone": "a"}},
    "POST /nodes/{node_id}/burst": {"duration_seconds": 5},
    "POST /nodes/{node_id}/monitoring": {"interval_seconds": 1},
    "POST /nodes/{node_id}/power-limit": {"device_uuid": "GPU-0", "power_limit_w": 300},
    "POST /namespaces/{namespace}": {"gpu_limit": 1},
    "POST /tokens": {"name": "x", "role": "viewer"},
}
QUERIES: Final = {"GET /decisions/what-if-policy": "?policy=density"}
IDS: Final = ("task", "experiment", "reservation", "subject", "monitoring", "token")
PLACES: Final = {
    "node_id": NODE,
    "index": "0",
    "namespace": "a",
    "preset_name": "p",
    "secret_name": "HF_TOKEN",
    **{f"{name}_id": str(UUID(int=7)) for name in IDS},
}


def test_every_route_has_a_rule() -> None:
    rows = {f"{row.method} {row.path}": row for row in ENDPOINTS.values() if row.root}

    assert rows.keys() == RULES.keys()
    assert {route for route, row in rows.items() if row.role is Role.ADMIN} <= {
        route for route, rule in RULES.items() if rule == ADMIN
    }


async def _answer_as_namespace_a(admin: Caller) -> None:
    owners = admin.api.owners
    await owners.answer(GetTask, lambda query: make_task_view(query.task_id, namespace="a"))
    await owners.answer(
        GetExperiment,
        lambda query: make_experiment_view(experiment_id=query.experiment_id, namespace="a"),
    )
    await owners.answer(
        GetReservation, lambda query: make_reservation_view(query.reservation_id, namespace="a")
    )
    await owners.answer(GetAllocationMap, make_allocation_map())
    await owners.answer(ListNamespaces, NamespaceList(namespaces=()))


async def test_token_reaches_only_what_its_role_allows(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with admins(nats_url, postgres_dsn, tmp_path) as (admin,):
        await _answer_as_namespace_a(admin)
        found: dict[str, dict[str, Any]] = {"viewer": {}, "submitter": {}}
        for role, answers in found.items():
            made = await admin.make(role=role, namespaces=["b", "c"])
            headers = Caller(admin.api, made["secret"]).headers
            sent = await admin.api.owners.overhear()
            for route, rule in RULES.items():
                if rule in {FLEET, OWN} and not (rule == OWN and role == "viewer"):
                    continue
                method, path = route.split(" ")
                for name, value in PLACES.items():
                    path = path.replace(f"{{{name}}}", value)
                if rule == LISTED:
                    path += "?namespace=a"
                path += QUERIES.get(route, "")
                body = BODIES.get(route, {}) if method == "POST" else None
                answers[route], _ = await admin.api.call(
                    method, f"/api/v1{path}", body, headers=headers
                )
            assert [subject for subject in sent if subject.startswith("gpusteward.cmd.")] == []

    for answers in found.values():
        assert {route: code for route, code in answers.items() if code not in {403, 404}} == {}
        assert {answers[route] for route in answers if RULES[route] in {ADMIN, LISTED}} == {403}


async def test_lists_are_of_the_callers_namespace(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    uses = tuple(NamespaceUse(namespace=name, gpus=1.0) for name in ("a", "b", "c"))
    async with admins(nats_url, postgres_dsn, tmp_path) as (admin,):
        await admin.api.owners.answer(ListExperiments, ExperimentList(experiments=()))
        await admin.api.owners.answer(ListReservations, ReservationList(reservations=()))
        await admin.api.owners.answer(ListNamespaces, NamespaceList(namespaces=uses))
        made = await admin.make(role="viewer", namespaces=["b", "c"])
        viewer = Caller(admin.api, made["secret"])

        for caller in (viewer, admin):
            for kind in ("tasks", "experiments", "reservations"):
                assert (await caller.get(f"/api/v1/{kind}"))[0] == 200
        assert (await viewer.get("/api/v1/tasks?namespace=c"))[0] == 200
        _, shown = await viewer.get("/api/v1/namespaces")
        asked = [
            (type(query), query.namespace)
            for query in admin.api.owners.received
            if isinstance(query, ListTasks | ListExperiments | ListReservations)
        ]

    lists = (ListTasks, ListExperiments, ListReservations)
    assert asked == [
        *((query, "b") for query in lists),
        *((query, None) for query in lists),
        (ListTasks, "c"),
    ]
    assert [use["namespace"] for use in shown["namespaces"]] == ["b", "c"]


async def test_pods_are_those_of_the_callers_namespaces(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    view = SeriesView(metric=SeriesMetric.UTILIZATION_PERCENT, bucket_seconds=60.0)
    async with admins(nats_url, postgres_dsn, tmp_path) as (admin,):
        await admin.api.owners.answer(ListPods, PodList(pods=()))
        await admin.api.owners.answer(GetSeries, view)
        made = await admin.make(role="viewer", namespaces=["b", "c"])
        viewer = Caller(admin.api, made["secret"])

        answers = [
            (await caller.get(f"/api/v1/{place}"))[0]
            for caller in (viewer, admin)
            for place in ("pods", "pods?namespace=c", "series?by=pod", "series?by=node&namespace=c")
        ]
        denied, _ = await viewer.get("/api/v1/series?by=pod&namespace=a")
        asked = [
            (query.readable, query.namespace)
            for query in admin.api.owners.received
            if isinstance(query, ListPods | GetSeries)
        ]

    assert (set(answers), denied) == ({200}, 403)
    own = ("b", "c")
    assert asked == [(own, None), (own, "c")] * 2 + [(None, None), (None, "c")] * 2


async def test_fleet_is_shown_without_foreign_holders(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    allocation = make_allocation_map()
    async with admins(nats_url, postgres_dsn, tmp_path) as (admin,):
        (node,) = allocation.nodes
        held, free = node.devices
        held = replace(held, reservation_id=uuid4(), namespace="a", holder="secret-job")
        node = replace(node, devices=(held, free))
        await admin.api.owners.answer(GetAllocationMap, replace(allocation, nodes=(node,)))
        await admin.api.owners.answer(ListDrifts, DriftList(drifts=(make_drift(),)))
        await admin.api.owners.publish(make_sample())
        seen = {}
        for namespace in ("a", "b"):
            made = await admin.make(role="viewer", namespaces=[namespace])
            viewer = Caller(admin.api, made["secret"])
            seen[namespace] = [
                (await viewer.get(path))[1]
                for path in (
                    "/api/v1/gpus",
                    f"/api/v1/nodes/{NODE}/gpu-alloc-map",
                    "/api/v1/drifts",
                )
            ]

    own, foreign = (seen[namespace][0]["gpus"][0] for namespace in ("a", "b"))
    assert (own["holder"], own["namespace"]) == ("secret-job", "a")
    assert (foreign["holder"], foreign["namespace"], foreign["reservation_id"]) == (
        "another namespace", None, None,
    )  # fmt: skip
    assert foreign["state"] == own["state"] == "held"
    assert "secret-job" not in str(seen["b"])
    assert "process 7" not in str(seen["b"])


async def test_events_are_limited_to_namespaces_and_fleet(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    tasks = {name: uuid4() for name in ("a", "b")}
    async with admins(nats_url, postgres_dsn, tmp_path) as (admin,):
        _, before = await admin.get("/api/v1/events?limit=1000")
        after = before["cursor"]
        made = await admin.make(role="viewer", namespaces=["b"])
        viewer = Caller(admin.api, made["secret"])
        socket = await admin.api.session.ws_connect(
            f"{admin.api.url}/ws/events?after={after}", headers=viewer.headers
        )
        for name, task_id in tasks.items():
            await admin.api.owners.client.jetstream().publish(
                *_wire(make_task_started(task_id=task_id, namespace=name))
            )
        await socket.receive_json(timeout=60)
        for task_id in tasks.values():
            await admin.api.owners.publish(_progress(task_id))
        admin.api.session.headers.update(admin.headers)
        await logged(admin.api, 2, f"/api/v1/events?after={after}")

        passing = await socket.receive_json(timeout=60)
        _, mine = await viewer.get(f"/api/v1/events?after={after}")
        _, foreign = await viewer.get(f"/api/v1/events?after={after}&task_id={tasks['a']}")
        _, everything = await admin.get(f"/api/v1/events?after={after}")
        refused, _ = await viewer.get(f"/sse/metrics?task_id={tasks['a']}")
        await socket.close()

    assert [event["event"]["namespace"] for event in mine["events"]] == ["b"]
    assert passing["event"]["task_id"] == str(tasks["b"])
    assert foreign["events"] == []
    assert len(everything["events"]) == 2
    assert refused == 404


def _wire(event: Any) -> tuple[str, bytes]:
    return subject_for(event), encode(event)


def _progress(task_id: UUID) -> AttemptProgressed:
    return AttemptProgressed(
        executor_id=NODE,
        experiment_id=uuid4(),
        attempt_id=uuid4(),
        task_id=task_id,
        phase=AttemptPhase.MEASURING,
        fraction=0.5,
        observed_at=make_sample().observed_at,
    )
