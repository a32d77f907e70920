import pytest

from schemas.gpus.device_grant import DeviceGrant, DeviceShare, ShareKind
from services.results.domain.device_parts import hundredths_of


@pytest.mark.parametrize(
    ("share", "hundredths"),
    [
        (None, 100),
        (DeviceShare(kind=ShareKind.MPS, shares=0.29), 29),
        (DeviceShare(kind=ShareKind.MPS, shares=0.5, compute_percent=25.0), 50),
        (DeviceShare(kind=ShareKind.MPS, compute_percent=25.0), 25),
        (DeviceShare(kind=ShareKind.MPS, memory_mb=1000), 100),
    ],
)
def test_grant_counts_as_held_or_as_its_bound(share: DeviceShare | None, hundredths: int) -> None:
    device = DeviceGrant(node_id="n", uuid="GPU-0", index=0, name="H100", share=share)

    assert hundredths_of(device) == hundredths
