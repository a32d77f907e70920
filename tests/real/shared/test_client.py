"""The client over real HTTP and WebSockets, against a stand-in for the gateway."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from schemas.errors import ErrorCode
from schemas.gateway import endpoints
from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.reservations import ReservationState
from schemas.scheduler.views import AvailabilityView
from shared import client as steward
from shared.client import (
    Address,
    ApiError,
    PlatformUnreachable,
    StewardClient,
    aio_scheduling,
    find_address,
)
from shared.paths import DataDirectory, Endpoint
from shared.testing import eventually
from tests.support.fakes.gateway import StubGateway, stub_gateway
from tests.support.worlds.gateway_views import make_gpu, make_grant

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
async def gateway(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[StubGateway, str]]:
    async with stub_gateway() as (stub, url):
        monkeypatch.setenv("GPUSTEWARD_URL", url)
        yield stub, url


async def test_changes_carry_idempotency_key_and_token(
    gateway: tuple[StubGateway, str],
) -> None:
    stub, url = gateway

    async with StewardClient(Address(url, "secret")) as client:
        await client.request_reservation(GpuRequest(gpus=2), holder="test")

    ((_, path, body),) = stub.calls
    assert path == "/api/v1/reservations"
    assert (body["holder"], body["request"]["gpus"]) == ("test", 2)
    assert stub.keys[0]
    assert stub.tokens == ["Bearer secret"]


async def test_a_refusal_carries_code_field_and_sentence(gateway: tuple[StubGateway, str]) -> None:
    stub, url = gateway
    stub.refusal = ErrorCode.BAD_REQUEST

    async with StewardClient(Address(url)) as client:
        with pytest.raises(ApiError, match="refused by the test") as seen:
            await client.submit_task(b"{}")

    assert (seen.value.code, seen.value.path) == (ErrorCode.BAD_REQUEST, "$.model")


async def test_foreign_answer_is_a_clear_error(
    gateway: tuple[StubGateway, str],
) -> None:
    _, url = gateway

    async with StewardClient(Address(f"{url}/elsewhere")) as client:
        with pytest.raises(ApiError) as seen:
            await client.gpus()

    assert seen.value.code is ErrorCode.NOT_FOUND


async def test_an_unreachable_platform_is_told_at_once() -> None:
    async with StewardClient(Address(NOWHERE)) as client:
        with pytest.raises(PlatformUnreachable, match=f"nothing answers at {NOWHERE}"):
            await client.tasks()


async def test_patient_client_retries_with_the_same_key(
    gateway: tuple[StubGateway, str],
) -> None:
    stub, url = gateway
    stub.refusal = ErrorCode.UNAVAILABLE

    async with StewardClient(Address(url), retry_seconds=5) as client:
        asking = asyncio.create_task(client.request_reservation(GpuRequest(), holder="test"))
        await eventually(lambda: len(stub.calls) >= 2, what="a second try")
        stub.refusal = None
        await asking

    assert len(set(stub.keys)) == 1
    assert len(stub.reservations) == 1


async def test_restarting_service_is_retried_in_time(
    gateway: tuple[StubGateway, str],
) -> None:
    stub, url = gateway
    stub.refusal, stub.is_passing = ErrorCode.UNAVAILABLE, True

    async with StewardClient(Address(url)) as client:
        asking = asyncio.create_task(client.request_reservation(GpuRequest(), holder="test"))
        await eventually(lambda: len(stub.calls) >= 2, what="a second try")
        stub.refusal = None
        await asking

    assert len(set(stub.keys)) == 1


async def test_what_may_stay_away_is_told_at_once(gateway: tuple[StubGateway, str]) -> None:
    stub, url = gateway
    stub.refusal = ErrorCode.UNAVAILABLE

    async with StewardClient(Address(url), timeout_seconds=60) as client:
        with pytest.raises(ApiError):
            await client.gpus()

    assert len(stub.calls) == 1


async def test_restarting_gateway_is_asked_again() -> None:
    calls = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with StewardClient(Address(url)) as client:
            with pytest.raises(PlatformUnreachable):
                await client.call(endpoints.ESTIMATE.read_as(bytes), {})
        calls = 0
        async with StewardClient(Address(url, is_supervised=True)) as client:
            assert await client.call(endpoints.ESTIMATE.read_as(bytes), {}) == b"{}"


async def test_waiting_for_a_grant_ends_with_its_state(gateway: tuple[StubGateway, str]) -> None:
    stub, url = gateway
    stub.outcome = ReservationState.REJECTED

    async with StewardClient(Address(url)) as client:
        reservation_id = await client.request_reservation(GpuRequest(gpus=9), holder="test")
        view = await client.await_reservation(reservation_id, timeout_seconds=5)

    assert view.state is ReservationState.REJECTED
    assert "wait_seconds=5" in stub.calls[-1][1]


def test_url_is_argument_variable_or_data_dir(
    tmp_path: Path,
) -> None:
    directory = DataDirectory(tmp_path)
    directory.write_endpoint(Endpoint(pid=1, api_url="http://file"))
    environ = {"GPUSTEWARD_URL": "http://env/", "GPUSTEWARD_TOKEN": "t"}

    assert find_address("http://arg", environ=environ) == Address("http://arg", "t")
    assert find_address(environ=environ) == Address("http://env", "t")
    ours = Address("http://file", "t", is_supervised=True)
    assert find_address(environ=environ, data_dir=tmp_path) == ours
    with pytest.raises(PlatformUnreachable, match="no platform runs on"):
        find_address(environ={"GPUSTEWARD_DATA_DIR": str(tmp_path / "empty")})


async def test_available_gpus_come_best_first(
    gateway: tuple[StubGateway, str],
) -> None:
    stub, _ = gateway
    stub.available = [1, 0]

    assert await asyncio.to_thread(steward.get_available_gpus, 8_000, 30) == [1, 0]
    assert await asyncio.to_thread(steward.get_available_gpus) == [1, 0]
    assert [call[1] for call in stub.calls if "available-gpus" in call[1]] == [
        "/api/v1/nodes/alpha/available-gpus?min_memory_mb=8000&max_utilization=30",
        "/api/v1/nodes/alpha/available-gpus?max_utilization=50",
    ]


async def test_default_groups_are_balanced_without_memory(
    gateway: tuple[StubGateway, str],
) -> None:
    stub, _ = gateway

    await aio_scheduling.check_gpu_availability(2)
    await aio_scheduling.wait_for_gpu_availability(2, timeout_seconds=0.3)
    for balanced in (True, False):
        with pytest.raises(RuntimeError):
            await aio_scheduling.select_gpus_for_task(2, balanced_memory=balanced)

    asked = [
        ("wait_seconds" in path, body["min_memory_mb"], body["balanced_memory"])
        for _, path, body in stub.calls_of("POST")
    ]
    assert list(dict.fromkeys(asked)) == [
        (False, 0, True),
        (True, 0, True),
        (False, 8000, True),
        (False, 8000, False),
    ]


async def test_query_gpus_uses_the_documented_names(
    gateway: tuple[StubGateway, str],
) -> None:
    stub, _ = gateway

    snapshot = await asyncio.to_thread(steward.query_gpus, use_cache=False)

    assert snapshot is not None
    assert [(gpu.index, gpu.memory_total_mb, gpu.simulated) for gpu in snapshot.gpus] == [
        (0, 80_000, True),
        (1, 80_000, True),
    ]
    assert stub.calls[-1][1] == "/api/v1/gpus?use_cache=false"
    assert await asyncio.to_thread(steward.is_available)


def test_no_platform_means_nothing_available(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GPUSTEWARD_URL", NOWHERE)

    assert steward.query_gpus() is None
    assert not steward.is_available()


async def test_get_gpu_info_finds_by_index(gateway: tuple[StubGateway, str]) -> None:
    found = await asyncio.to_thread(steward.get_gpu_info, 1)

    assert found is not None
    assert found.uuid == "GPU-1"
    assert await asyncio.to_thread(steward.get_gpu_info, 9) is None


async def test_index_on_one_of_many_nodes_needs_the_node(
    gateway: tuple[StubGateway, str],
) -> None:
    stub, _ = gateway
    stub.gpus = [make_gpu(0), make_gpu(0, node_id="beta", uuid="GPU-beta")]

    with pytest.raises(ValueError, match="expected node_id to be one of alpha, beta"):
        await asyncio.to_thread(steward.get_gpu_info, 0)
    found = await asyncio.to_thread(steward.get_gpu_info, 0, node_id="beta")
    assert found is not None
    assert found.uuid == "GPU-beta"


async def test_estimate_and_availability_answer_as_pairs(gateway: tuple[StubGateway, str]) -> None:
    task = {"model": {"id_or_path": "llama-3-70b"}, "parameters": {"tp-size": [1, 2, 4]}}

    assert await asyncio.to_thread(steward.estimate_gpu_requirements, task) == (4, 20_000)
    assert await asyncio.to_thread(steward.check_gpu_availability, 4, 10_000) == (
        False,
        "all GPUs are held",
    )


async def test_select_gpus_reserves_nothing_and_may_raise(
    gateway: tuple[StubGateway, str],
) -> None:
    stub, _ = gateway

    with pytest.raises(RuntimeError, match="expected 2 GPUs: all GPUs are held"):
        await asyncio.to_thread(steward.select_gpus_for_task, 2)
    stub.availability = AvailabilityView(
        available=True, message="", devices=(make_grant(1), make_grant(0))
    )
    assert await asyncio.to_thread(steward.select_gpus_for_task, 2) == [1, 0]
    assert not stub.reservations


async def test_wait_for_gpus_is_one_long_question(
    gateway: tuple[StubGateway, str],
) -> None:
    stub, _ = gateway

    waiting = asyncio.create_task(aio_scheduling.wait_for_gpu_availability(1, timeout_seconds=300))
    await eventually(lambda: len(_asked(stub)) == 1)
    stub.availability = AvailabilityView(available=True, message="1 GPU available on alpha")
    stub.freed.set()

    assert await asyncio.wait_for(waiting, 30) == (True, "1 GPU available on alpha")
    assert len(_asked(stub)) == 1
    assert "wait_seconds=" in stub.calls[-1][1]


async def test_deployment_nodes_use_documented_names(
    gateway: tuple[StubGateway, str],
) -> None:
    stub, _ = gateway

    (gpu,) = await asyncio.to_thread(steward.get_cluster_gpu_status)
    summaries = await asyncio.to_thread(steward.get_node_gpu_summaries)
    best = await asyncio.to_thread(steward.find_best_node_for_deployment, required_gpus=1)
    none = await aio_scheduling.select_best_node(2, utilization_threshold=20.0)

    assert (gpu.node_name, gpu.gpu_index, gpu.utilization_percent) == ("alpha", 0, None)
    assert summaries["alpha"].idle_gpu_count == 1
    assert best == "alpha"
    assert none is None
    assert stub.calls[-1][1] == (
        "/api/v1/select-node?required_gpus=2&utilization_threshold=20.0&memory_threshold=50.0"
    )


async def test_async_functions_answer_like_plain_ones(
    gateway: tuple[StubGateway, str], caplog: pytest.LogCaptureFixture
) -> None:
    task = {"model": {"id_or_path": "llama-3-70b"}, "parameters": {"tp-size": [1, 2, 4]}}

    with caplog.at_level(logging.INFO):
        assert await aio_scheduling.estimate_gpu_requirements(task) == (4, 20_000)
    assert "Estimated requirements: 4 GPUs, 20000 MB each" in caplog.text
    assert await aio_scheduling.check_gpu_availability(4) == (False, "all GPUs are held")
    with pytest.raises(RuntimeError, match="all GPUs are held"):
        await aio_scheduling.select_gpus_for_task(1)


async def test_wait_for_impossible_gpus_ends_at_once(
    gateway: tuple[StubGateway, str],
) -> None:
    stub, _ = gateway
    stub.availability = AvailabilityView(available=False, impossible=True, message="never")

    answer = await asyncio.wait_for(
        aio_scheduling.wait_for_gpu_availability(64, timeout_seconds=300), 30
    )

    assert answer == (False, "never")
    assert len(_asked(stub)) == 1


async def test_vain_wait_for_gpus_tells_progress_and_why(
    gateway: tuple[StubGateway, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="shared.client.aio_scheduling")

    answer = await asyncio.to_thread(
        steward.wait_for_gpu_availability, 1, timeout_seconds=1, check_interval=0.3
    )

    assert answer == (False, "all GPUs are held")
    said = [record.getMessage() for record in caplog.records]
    assert said
    assert all(
        re.fullmatch(r"Waiting for 1 GPUs \(\d of 1 s\): all GPUs are held", s) for s in said
    )


def _asked(stub: StubGateway) -> list[object]:
    return [call for call in stub.calls if call[1].startswith("/api/v1/availability")]
