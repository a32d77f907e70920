"""What DCGM's numbers mean."""

import pytest

from shared.gpu.dcgm_values import is_blank, memory_mb, utilization_percent


@pytest.mark.parametrize("first", [0x7FFFFFF0, 140737488355328])
def test_sixteen_blank_floats_mean_no_value(first: int) -> None:
    assert [is_blank(float(first + beyond)) for beyond in (-1, 0, 15, 16)] == [
        *(False, True, True, False)
    ]


def test_blank_integers_mean_no_value() -> None:
    greatest = float(0x7FFFFFFFFFFFFFF0)

    assert is_blank(greatest)
    assert is_blank(2 * greatest)
    assert not is_blank(greatest / 2)


@pytest.mark.parametrize(
    ("values", "is_instance", "percent"),
    [
        ({"DCGM_FI_DEV_GPU_UTIL": 37.0, "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.5}, False, 37.0),
        ({"DCGM_FI_DEV_GPU_UTIL": 37.0, "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.5}, True, 50.0),
        ({"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.41234}, False, 41.23),
        ({"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 1.01}, False, 100.0),
        ({"DCGM_FI_DEV_GPU_UTIL": 37.0}, True, None),
        ({}, False, None),
    ],
)
def test_mig_instance_has_its_own_engine_time(
    values: dict[str, float], is_instance: bool, percent: float | None
) -> None:
    assert utilization_percent(values, is_instance=is_instance) == percent


def test_nothing_and_little_are_values() -> None:
    assert not is_blank(0.0)
    assert not is_blank(0.5)
    assert is_blank(-1.0)


def test_missing_total_is_the_sum_of_its_parts() -> None:
    parts = {"DCGM_FI_DEV_FB_USED": 10.0, "DCGM_FI_DEV_FB_FREE": 60.0}

    assert memory_mb(parts) == (70, 10, 60)
    assert memory_mb({**parts, "DCGM_FI_DEV_FB_RESERVED": 5.0}) == (75, 10, 60)
    assert memory_mb({**parts, "DCGM_FI_DEV_FB_TOTAL": 80.0}) == (80, 10, 60)
    assert memory_mb({"DCGM_FI_DEV_FB_USED": 10.0}) == (None, 10, None)
