"""Whether the generated pages of docs/ say what the code says."""

import pytest

from tests.support.paths import ROOT


@pytest.mark.parametrize("path", ["docs/cli.md", "docs/settings.md"])
def test_a_generated_page_is_current(path: str) -> None:
    # Takes a third of a second to import, in every process that collects tests.
    from tests.contract.make_reference import COMMAND, pages

    written = (ROOT / path).read_text() if (ROOT / path).exists() else ""

    assert len(pages()) == 2
    assert written == pages()[ROOT / path], f"expected {path} to be current: run `{COMMAND}`"
