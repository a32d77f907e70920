"""Whether the generated pages of docs/ say what the code says."""

import pytest

from tests.contract.make_reference import COMMAND, pages
from tests.support.paths import ROOT


@pytest.mark.parametrize("path", [path.relative_to(ROOT).as_posix() for path in pages()])
def test_a_generated_page_is_current(path: str) -> None:
    written = (ROOT / path).read_text() if (ROOT / path).exists() else ""

    assert written == pages()[ROOT / path], f"expected {path} to be current: run `{COMMAND}`"
