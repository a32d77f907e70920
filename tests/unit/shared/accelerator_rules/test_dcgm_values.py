"""What DCGM's numbers mean."""

from shared.gpu.dcgm_values import is_blank, memory_mb


def test_nothing_and_little_are_values() -> None:
    assert not is_blank(0.0)
    assert not is_blank(0.5)
    assert is_blank(-1.0)


def test_a_total_that_is_not_told_is_the_sum_of_its_parts() -> None:
    parts = {"DCGM_FI_DEV_FB_USED": 10.0, "DCGM_FI_DEV_FB_FREE": 60.0}

    assert memory_mb(parts) == (70, 10, 60)
    assert memory_mb({**parts, "DCGM_FI_DEV_FB_RESERVED": 5.0}) == (75, 10, 60)
    assert memory_mb({**parts, "DCGM_FI_DEV_FB_TOTAL": 80.0}) == (80, 10, 60)
    assert memory_mb({"DCGM_FI_DEV_FB_USED": 10.0}) == (None, 10, None)
