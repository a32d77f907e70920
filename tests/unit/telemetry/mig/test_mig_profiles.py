"""MIG profiles, by name or by size."""

import pytest

from services.telemetry.domain.mig_profiles import mig_profile


@pytest.mark.parametrize(
    ("name", "slices", "memory_mb", "want"),
    [
        pytest.param("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None, None, "1g.5gb", id="in the name"),
        pytest.param(
            "NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb", None, None, "1c.3g.40gb", id="part of it"
        ),
        pytest.param("NVIDIA H100 MIG 1g.10gb+me", None, None, "1g.10gb+me", id="with media"),
        pytest.param("NVIDIA H100", (3, 3), 40448, "3g.40gb", id="by its slices"),
        pytest.param("NVIDIA H100", (3, 1), 40448, "1c.3g.40gb", id="by its share of slices"),
        pytest.param("NVIDIA H100", (1, 1), 9856, "1g.10gb", id="an eighth of the memory"),
        pytest.param("NVIDIA H100", (1, 1), 4000, "1g.10gb", id="never less than an eighth"),
        pytest.param(None, None, None, None, id="unknown"),
    ],
)
def test_a_profile_is_named_as_nvidia_names_it(
    name: str | None, slices: tuple[int, int] | None, memory_mb: int | None, want: str | None
) -> None:
    found = mig_profile(
        name,
        gpu_slices=slices and slices[0],
        compute_slices=slices and slices[1],
        memory_mb=memory_mb,
        parent_memory_mb=81559,
    )

    assert found == want
