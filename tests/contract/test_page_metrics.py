"""What the page calls the metrics of a GPU."""

import re

from services.telemetry.metrics.dcgm_names import FIELDS
from tests.support.web.browser import WEB


def test_page_names_fields_as_dcgm_does() -> None:
    text = (WEB / "src/domain/metric-scale.ts").read_text()

    names = re.findall(r'"(DCGM_\w+)"', text)

    assert len(names) == 4
    assert set(names) <= {field.name for field in FIELDS}
