"""Nodes by the CUDA of their drivers, in labels and in affinity."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.accelerator_rules.cuda_versions import CudaVersion
from shared.accelerator_rules.node_labels import (
    MAJOR_LABEL,
    MINOR_LABEL,
    cuda_labels,
    cuda_of,
    cuda_terms,
)

VERSIONS = st.builds(CudaVersion, st.integers(11, 13), st.integers(0, 3))


def is_chosen(driver: CudaVersion, runtime: CudaVersion) -> bool:
    """As Kubernetes reads terms: all expressions of any of them; Gt compares whole numbers."""
    labels = cuda_labels(driver)
    return any(
        all(
            labels[each["key"]] in each["values"]
            if each["operator"] == "In"
            else int(labels[each["key"]]) > int(each["values"][0]) >= 0
            for each in term["matchExpressions"]
        )
        for term in cuda_terms(runtime)
    )


@given(VERSIONS, VERSIONS)
def test_nodes_need_a_driver_for_the_runtime(driver: CudaVersion, runtime: CudaVersion) -> None:
    assert is_chosen(driver, runtime) is (driver >= runtime)
    assert cuda_of(cuda_labels(driver)) == driver


@pytest.mark.parametrize(
    ("major", "minor", "told"),
    [
        ("12", "4", CudaVersion(12, 4)),
        ("9999", "0000", CudaVersion(9999, 0)),
        ("12", None, None),
        (None, "4", None),
        ("12", "", None),
        ("12", "x", None),
        ("12", "-1", None),
        ("12", "10000", None),
    ],
)
def test_labels_that_say_no_version_tell_nothing(
    major: str | None, minor: str | None, told: CudaVersion | None
) -> None:
    given_labels = {MAJOR_LABEL: major, MINOR_LABEL: minor}

    assert cuda_of({name: value for name, value in given_labels.items() if value}) == told
