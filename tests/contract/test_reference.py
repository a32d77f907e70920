"""Whether the generated pages of docs/ and the page's rules say what the code says."""

from tests.support.paths import ROOT


def test_generated_pages_are_current() -> None:
    # Takes a third of a second to import, in every process that collects tests.
    from tests.contract.make_reference import COMMAND, pages

    made = pages()
    stale = [path for path, text in made.items() if not path.exists() or path.read_text() != text]

    names = (f"docs/reference/{name}.md" for name in ("cli", "roles", "settings", "task-file"))
    rules = "services/gateway/web/src/domain/rules.generated.ts"
    assert set(made) == {ROOT / name for name in (*names, rules)}
    assert not stale, f"expected them to be current: run `{COMMAND}`"
