"""A request in vGPU cores and memory is one for shares or whole GPUs."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.gpus.gpu_request import GpuRequest
from services.scheduler.domain.placement.decisions import Grant
from services.scheduler.domain.placement.shares import hundredths
from services.scheduler.intake.validation import check_wanted
from shared.accelerator_rules.modes import request_of
from shared.messaging.codec import encode
from tests.unit.scheduler.builders import NOW, make_device, make_engine, queue


@pytest.mark.parametrize(
    ("asked", "means"),
    [
        pytest.param(
            {"vgpu_cores": 50}, {"shares": 0.5, "unfragmented": True}, id="a part of one GPU"
        ),
        pytest.param({"vgpu_cores": 100}, {}, id="100 cores are one GPU"),
        pytest.param({"vgpu_cores": 300}, {"gpus": 3}, id="a multiple of 100 are whole GPUs"),
        pytest.param(
            {"vgpu_cores": 30, "vgpu_memory_mb": 8_000},
            {"shares": 0.3, "unfragmented": True, "min_memory_mb": 26_667},
            id="memory is that of the part",
        ),
    ],
)
def test_cores_read_as_what_they_mean(asked: dict[str, Any], means: dict[str, Any]) -> None:
    request = GpuRequest(**asked)

    assert request == GpuRequest(**means)
    assert msgspec.json.decode(msgspec.json.encode(asked), type=GpuRequest) == request
    assert msgspec.msgpack.decode(encode(request), type=GpuRequest) == request
    check_wanted(request)


@given(st.integers(1, 99))
def test_every_number_of_cores_is_an_exact_amount(cores: int) -> None:
    request = GpuRequest(vgpu_cores=cores)

    assert request.shares is not None
    assert hundredths(request.shares) == cores
    check_wanted(request)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"vgpu_cores": 150}, "a multiple of 100, got 150"),
        ({"vgpu_cores": 200, "vgpu_memory_mb": 1}, "no `vgpu_memory_mb` with whole GPUs"),
        ({"vgpu_memory_mb": 1}, "`vgpu_cores` with"),
        ({"vgpu_cores": 50, "shares": 0.5}, "no gpus, nodes, shares or mig_profile"),
        ({"vgpu_cores": 50, "mig_profile": "1g.10gb"}, "no gpus, nodes, shares or mig_profile"),
        ({"vgpu_cores": 50, "gpus": 2}, "no gpus, nodes, shares or mig_profile"),
        ({"vgpu_cores": 50, "vgpu_memory_mb": 1, "min_memory_mb": 1}, "expected one of"),
        ({"vgpu_cores": 0}, ">= 1"),
    ],
)
def test_what_no_vgpu_can_be_is_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert(asked, GpuRequest)


@given(
    st.lists(st.integers(0, 80_000), min_size=1, max_size=8),
    st.integers(1, 6),
)
def test_whole_gpus_reserve_alike_in_every_form(free: list[int], gpus: int) -> None:
    forms = (
        GpuRequest(gpus=gpus),
        GpuRequest(vgpu_cores=100 * gpus),
        request_of({"nvidia.com/gpu": gpus}),
        request_of({"tencent.com/vcuda-core": 100 * gpus}),
        request_of({"nvidia.com/mps-core": 100 * gpus}),
    )

    def reserved(request: GpuRequest) -> list[str]:
        engine = make_engine(*(make_device(n, free_mb=mb) for n, mb in enumerate(free)))
        queue(engine, 1, request)
        granted = [each for each in engine.decide(NOW) if isinstance(each, Grant)]
        return [scored.device.uuid for each in granted for scored in each.placed.devices]

    first, *others = map(reserved, forms)
    assert len(first) == (gpus if gpus <= sum(mb >= 40_000 for mb in free) else 0)
    assert all(other == first for other in others)
