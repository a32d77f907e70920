"""A node's agent through the gateway: routes, client functions, who may do what."""

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from schemas.gpus.available_gpus import AvailableGpus, ListAvailableGpus, ScoredGpu
from schemas.gpus.checks import CudaCheck, PrecisionCheck
from schemas.scheduler.views import AllocationMap, GetAllocationMap, GetReservation
from schemas.telemetry.readings import SetBurst, SetPowerLimit
from shared.client import Address, StewardClient, aio_telemetry
from shared.ids import new_id
from shared.testing import eventually
from tests.support.worlds.gateway import (
    NODE,
    Api,
    a_node,
    gateway,
    make_allocation_map,
    make_reservation_view,
)

MADE_UP = "GPU-51a7ed00-0000-4000-8000-000000000000"


async def heard(api: Api) -> None:
    async def is_there() -> bool:
        _, gpus = await api.get("/api/v1/gpus")
        _, nodes = await api.get("/api/v1/nodes")  # an inventory may come after the first reading
        return any(gpu["fresh"] for gpu in gpus["gpus"]) and any(
            node.get("host") for node in nodes["nodes"]
        )

    await eventually(is_there, what="a reading and an inventory at the gateway")


async def test_required_functions_work_on_real_platform(
    nats_url: str, postgres_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateway(nats_url, postgres_dsn) as api, a_node(nats_url, tmp_path):
        monkeypatch.setenv("GPUSTEWARD_URL", api.url)
        await heard(api)
        available = await aio_telemetry.is_available()
        snapshot = await aio_telemetry.query_gpus(use_cache=False)
        info = await aio_telemetry.get_gpu_info(0)
        unknown = await aio_telemetry.get_gpu_info(9)
        nothing = await aio_telemetry.stop_monitoring()
        await aio_telemetry.start_monitoring(0.1)
        await asyncio.sleep(0.5)
        seen = await aio_telemetry.stop_monitoring()

    assert available
    assert snapshot is not None
    assert [gpu.index for gpu in snapshot.gpus] == [0, 1]
    assert info is not None
    assert (info.uuid, info.simulated, unknown, nothing) == (MADE_UP, True, None, None)
    assert seen is not None
    assert seen["sample_count"] >= 3
    assert seen["gpu_stats"]["0"]["utilization"]["samples"] == seen["sample_count"]
    assert set(seen["gpu_stats"]["0"]) >= {
        "name",
        "memory_used_mb",
        "memory_usage_percent",
        "temperature_c",
        "power_draw_w",
    }


async def test_an_agent_is_reached_by_http(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with (
        gateway(nats_url, postgres_dsn) as api,
        a_node(nats_url, tmp_path),
        StewardClient(Address(api.url)) as client,
    ):
        await heard(api)
        agent = await client.agent(NODE)
        free = AvailableGpus(node_id=NODE, gpus=(ScoredGpu(index=1, uuid="GPU-1", score=1.0),))
        await api.owners.answer(ListAvailableGpus, free)
        ranked = await client.available_gpus(NODE, min_memory_mb=1000)
        await api.get(f"/api/v1/nodes/{NODE}/available-gpus?use_cache=false")
        detail = await client.gpu(NODE, 1)
        await client.set_burst(NODE, duration_seconds=1.0)
        await client.set_power_limit(NODE, MADE_UP, 450.0)
        capped = await client.gpu(NODE, 0, use_cache=False)
        await client.set_power_limit(NODE, MADE_UP, None)
        freed = await client.gpu(NODE, 0, use_cache=False)
        beyond, problem = await api.post(
            f"/api/v1/nodes/{NODE}/power-limit",
            {"device_uuid": MADE_UP, "power_limit_w": 9000},
        )
        missing, _ = await api.get(f"/api/v1/nodes/{NODE}/gpus/9")
        _, figures = await api.get("/metrics")

    assert (agent.available, ranked, detail.facts.index) == (True, free, 1)
    assert api.owners.received == [
        ListAvailableGpus(node_id=NODE, min_memory_mb=1000),
        ListAvailableGpus(node_id=NODE),
    ]
    assert capped.reading is not None
    assert freed.reading is not None
    assert (capped.reading.power_limit_w, freed.reading.power_limit_w) == (450.0, 700.0)
    assert (beyond, missing) == (400, 404)
    assert problem["details"] == {"minimum_w": 200.0, "maximum_w": 700.0}
    assert "gpusteward_gateway_samples_received_total" in figures
    assert "process_resident_memory_bytes" in figures


async def test_unknown_node_is_404_and_absent_one_503(nats_url: str, postgres_dsn: str) -> None:
    routes: list[tuple[str, str, Any]] = [
        ("GET", "agent", None),
        ("GET", "available-gpus?use_cache=false", None),
        ("GET", "gpus/0", None),
        ("POST", "monitoring", {}),
        ("DELETE", f"monitoring/{new_id()}", None),
        ("POST", "burst", {"duration_seconds": 5}),
        ("POST", "power-limit", {"device_uuid": "GPU-0", "power_limit_w": 300}),
    ]

    async with gateway(nats_url, postgres_dsn) as api:
        known = make_allocation_map()

        def answer(query: GetAllocationMap) -> AllocationMap:
            """Answer as for a fleet of more nodes than fit into a message."""
            if query.after_node_id is None and query.node_id is None:
                return AllocationMap(nodes=(), next_after_node_id="a-node")
            return known

        await api.owners.answer(GetAllocationMap, answer)

        async def found(node_id: str) -> dict[str, tuple[int, str | None]]:
            answers = [
                (route, await api.call(method, f"/api/v1/nodes/{node_id}/{route}", body))
                for method, route, body in routes
            ]
            return {route: (status, body.get("path")) for route, (status, body) in answers}

        never, away = await found("node-9"), await found(NODE)

    assert set(never.values()) == {(404, "path.node_id")}
    assert set(away.values()) == {(503, None)}


async def test_power_cap_is_for_holder_or_admin(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    roles = {
        "v": ("viewer", "a"),
        "s": ("submitter", "a"),
        "t": ("submitter", "b"),
        "r": ("admin", "a"),
    }
    tokens = [
        {
            "token_sha256": hashlib.sha256(token.encode()).hexdigest(),
            "role": role,
            "namespace": namespace,
        }
        for token, (role, namespace) in roles.items()
    ]
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps(tokens))
    held = {"device_uuid": "GPU-0", "power_limit_w": 300, "reservation_id": str(new_id())}
    free = {"device_uuid": "GPU-0", "power_limit_w": 300}
    burst = {"duration_seconds": 5}

    async with gateway(nats_url, postgres_dsn, tokens_file=str(path)) as api:
        await api.owners.accept(SetPowerLimit)
        await api.owners.accept(SetBurst)
        await api.owners.answer(
            GetReservation, lambda q: make_reservation_view(q.reservation_id, namespace="a")
        )

        async def status(token: str, what: str, body: dict[str, Any]) -> int:
            headers = {"Authorization": f"Bearer {token}"}
            answer = await api.post(f"/api/v1/nodes/{NODE}/{what}", body, headers=headers)
            return answer[0]

        limits = {t: [await status(t, "power-limit", b) for b in (held, free)] for t in roles}
        bursts = {token: await status(token, "burst", burst) for token in roles}

    assert limits == {"v": [403, 403], "s": [200, 403], "t": [403, 403], "r": [200, 200]}
    assert bursts == {"v": 403, "s": 200, "t": 200, "r": 200}


async def test_checks_answer_for_input_and_every_node(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with gateway(nats_url, postgres_dsn) as api, a_node(nats_url, tmp_path):
        await heard(api)
        of_one = await api.post(
            "/api/v1/checks", {"type": "cuda", "runtime": "13.0", "driver": "12.4"}
        )
        async with StewardClient(Address(api.url)) as client:
            of_all = await client.check(CudaCheck(runtime="cu121"))
            formats = await client.check(PrecisionCheck(precision="bf16"))
        misspelt = await api.post(
            "/api/v1/checks", {"type": "cuda", "runtime": "12.4", "cuda": "1"}
        )

    assert (of_one[0], of_one[1]["verdict"]) == (200, "blocked")
    assert [finding.subject for finding in of_all.findings] == [NODE]
    assert formats.findings
    assert (misspelt[0], misspelt[1]["path"]) == (400, "$.cuda")
