"""Whether the generated pages of docs/ say what the code says."""

from tests.support.paths import ROOT


def test_generated_pages_are_current() -> None:
    # Takes a third of a second to import, in every process that collects tests.
    from tests.contract.make_reference import COMMAND, pages

    made = pages()
    stale = [path for path, text in made.items() if not path.exists() or path.read_text() != text]

    names = ("cli.md", "settings.md", "task-file.md")
    assert set(made) == {ROOT / "docs" / name for name in names}
    assert not stale, f"expected them to be current: run `{COMMAND}`"
