"""Notes on what a search will do, made before it begins."""

from collections.abc import Iterator

from services.orchestrator.domain.search.search import Search
from services.orchestrator.domain.search.strategies.table import STRATEGIES


def search_notes(search: Search | None) -> Iterator[str]:
    """Yield how a search proceeds; nothing for a grid."""
    if search is None:
        return
    size = search.space.size
    of_all = f"of {size} configurations" if size is not None else "of ranges without steps"
    order = STRATEGIES[search.strategy].describe(search)
    yield f"strategy '{search.strategy.value}': at most {search.experiments} {of_all}, {order}"
