"""Who sees what: every route has a rule, on a real Postgres and bus."""

from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

import aiohttp
import msgspec
import pytest
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
from tests.support.role_table import REACH, STREAMS, Reach, least_role
from tests.support.worlds.gateway import (
    NODE,
    Api,
    logged,
    make_allocation_map,
    make_drift,
    make_experiment_view,
    make_reservation_view,
    make_sample,
    make_task_started,
    make_task_view,
)

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
    # Without a reservation it is an admin's.
    "POST /nodes/{node_id}/power-limit": {
        "device_uuid": "GPU-0",
        "power_limit_w": 300,
        "reservation_id": str(UUID(int=7)),
    },
    "POST /namespaces/{namespace}": {"gpu_limit": 1},
    "POST /namespaces/{namespace}/members": {"name": "ada"},
    "POST /tokens": {"name": "x", "role": "viewer", "namespaces": ["a"]},
}
QUERIES: Final = {
    "GET /decisions/what-if-policy": "?policy=density",
    "GET /comparison": f"?experiments={UUID(int=7)},{UUID(int=8)}",
    "POST /datasets": "?name=d",
}
IDS: Final = (*("task", "experiment", "reservation", "subject", "monitoring", "token", "member"),)
PLACES: Final = {
    "node_id": NODE,
    "index": "0",
    "namespace": "a",
    "preset_name": "p",
    "secret_name": "HF_TOKEN",
    "dataset_name": "d",
    **{f"{name}_id": str(UUID(int=7)) for name in IDS},
}


def test_every_route_has_a_reach() -> None:
    rows = {f"{row.method} {row.path}": row for row in ENDPOINTS.values() if row.root}

    assert rows.keys() == REACH.keys()
    for route, row in rows.items():
        assert (row.role is Role.ADMIN) is (REACH[route] is Reach.ALL), route
        assert (row.role is Role.OWNER) is (REACH[route] is Reach.OWNED), route


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


def request_of(route: str, namespace: str) -> tuple[str, str, Any]:
    """A request by this route about something of a namespace."""
    method, path = route.split(" ")
    for name, value in {**PLACES, "namespace": namespace}.items():
        path = path.replace(f"{{{name}}}", value)
    query = QUERIES.get(route, "")
    if REACH[route] is Reach.LISTED:
        query = f"{query}&namespace={namespace}" if query else f"?namespace={namespace}"
    body = BODIES.get(route, {}) if method == "POST" else None
    return method, f"/api/v1{path}{query}", body


async def status_of(api: Api, method: str, path: str, body: Any, headers: dict[str, str]) -> int:
    """Of an archive the rest may never come: nobody answers here whom it is made of."""
    data = msgspec.json.encode(body) if body is not None else None
    async with api.session.request(method, api.url + path, data=data, headers=headers) as response:
        return response.status


@pytest.mark.parametrize("role", [Role.VIEWER, Role.SUBMITTER, Role.OWNER])
async def test_nothing_of_another_namespace_is_reached(
    nats_url: str, postgres_dsn: str, tmp_path: Path, role: Role
) -> None:
    statuses: dict[str, int] = {}
    async with admins(nats_url, postgres_dsn, tmp_path) as (admin,):
        await _answer_as_namespace_a(admin)
        made = await admin.make(role=role, namespaces=["b", "c"])
        headers = Caller(admin.api, made["secret"]).headers
        sent = await admin.api.owners.overhear()
        for route, reach in REACH.items():
            if reach in {Reach.OPEN, Reach.FLEET, Reach.OWN} or route == "GET /tokens":
                continue
            method, path, body = request_of(route, "a")
            statuses[route] = await status_of(admin.api, method, path, body, headers)
        changed = [subject for subject in sent if subject.startswith("gpusteward.cmd.")]

    assert changed == []
    assert {route: code for route, code in statuses.items() if code not in {403, 404}} == {}
    sharp = {Reach.ALL, Reach.LISTED, Reach.OWNED}
    assert {statuses[route] for route in statuses if REACH[route] in sharp} == {403}


@pytest.mark.parametrize("role", list(Role))
async def test_each_role_does_what_the_table_says(
    nats_url: str, postgres_dsn: str, tmp_path: Path, role: Role
) -> None:
    """In a namespace of its own; whether owners of the state answer is not what is asked here."""
    statuses: dict[str, int] = {}
    async with admins(nats_url, postgres_dsn, tmp_path) as (admin,):
        await _answer_as_namespace_a(admin)
        made = await admin.make(role=role, namespaces=["a"])
        headers = Caller(admin.api, made["secret"]).headers
        for route in REACH:
            if route in {"POST /tokens", "POST /logout", "POST /sign-out"}:
                continue
            method, path, body = request_of(route, "a")
            statuses[route] = await status_of(admin.api, method, path, body, headers)

    for route, status in statuses.items():
        least = least_role(route)
        may = least is None or role.rank >= least.rank
        assert (status != 403) is may, (route, status)


async def test_streams_tell_nothing_of_another_namespace(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    foreign = {"task_id": UUID(int=7), "experiment_id": UUID(int=7), "namespace": "a"}
    async with admins(nats_url, postgres_dsn, tmp_path) as (admin,):
        await _answer_as_namespace_a(admin)
        statuses = {}
        for role in (Role.VIEWER, Role.SUBMITTER, Role.OWNER):
            made = await admin.make(role=role, namespaces=["b"])
            headers = Caller(admin.api, made["secret"]).headers
            for path in STREAMS:
                row = next(row for row in ENDPOINTS.values() if row.path == path)
                for name in foreign.keys() & set(row.query):
                    if path.endswith("events"):
                        continue  # its events are filtered, see below
                    address = f"{path}?{name}={foreign[name]}"
                    key = (role, address)
                    if path.startswith("/sse"):
                        statuses[key], _ = await admin.api.get(address, headers=headers)
                        continue
                    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                        await admin.api.session.ws_connect(admin.api.url + address, headers=headers)
                    statuses[key] = refused.value.status
        without = [(await admin.api.get(path))[0] for path in STREAMS if path.startswith("/sse")]

    assert len(statuses) == 3 * 7
    assert set(statuses.values()) == {403, 404}
    assert without == [401, 401]


async def test_owner_learns_nothing_of_another_namespace(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    word = "classified"
    uses = tuple(NamespaceUse(namespace=name, gpus=1.0) for name in (f"{word}-team", "b"))
    allocation = make_allocation_map()
    (node,) = allocation.nodes
    held, free = node.devices
    held = replace(held, reservation_id=uuid4(), namespace=f"{word}-team", holder=f"{word}-job")
    node = replace(node, devices=(held, free))
    drift = replace(make_drift(), detail=f"process of {word}-job")
    task_id = uuid4()
    async with admins(nats_url, postgres_dsn, tmp_path) as (admin,):
        owners = admin.api.owners
        await owners.answer(GetAllocationMap, replace(allocation, nodes=(node,)))
        await owners.answer(ListDrifts, DriftList(drifts=(drift,)))
        await owners.answer(ListNamespaces, NamespaceList(namespaces=uses))
        await owners.answer(
            GetTask, lambda q: make_task_view(q.task_id, namespace=f"{word}-team", task_name=word)
        )
        await owners.client.jetstream().publish(
            *_wire(make_task_started(task_id=task_id, namespace=f"{word}-team", task_name=word))
        )
        await owners.publish(make_sample())
        foreign = await admin.make(name=f"{word}-ci", namespaces=[f"{word}-team"])
        await admin.make(name=f"{word}-both", namespaces=["b", f"{word}-team"])
        await admin.post(f"/api/v1/namespaces/{word}-team/members", {"name": f"{word}-ada"})
        owner = Caller(admin.api, (await admin.make("olga", "owner", namespaces=["b"]))["secret"])
        texts = {}
        for route, reach in REACH.items():
            if route.startswith("GET") and reach is not Reach.ALL:
                if route.endswith("/export"):
                    continue  # its first part is asked for as `GET /tasks/{task_id}` is
                method, path, _ = request_of(route, "b")
                path = path.replace(PLACES["task_id"], str(task_id))
                status, body = await admin.api.call(method, path, headers=owner.headers)
                texts[route] = str(body)
                assert status not in {401, 403}, route
        token_id = foreign["token"]["token_id"]
        revoked = (await owner.delete(f"/api/v1/tokens/{token_id}"))[0]
        limited = [
            (await owner.post(f"/api/v1/namespaces/{name}", {"gpu_limit": 1}))[0]
            for name in (f"{word}-team", "b")
        ]
        weighted, problem = await owner.post("/api/v1/namespaces/b", {"weight": 7})

    assert {route: text for route, text in texts.items() if word in text} == {}
    assert (revoked, limited[0], weighted) == (404, 403, 403)
    assert limited[1] != 403
    assert "an admin what is taken from others" in problem["detail"]


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
