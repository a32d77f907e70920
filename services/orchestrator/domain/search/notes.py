"""Notes on what a search will do, made before it begins."""

from collections.abc import Iterator

from services.orchestrator.domain.search.propose import Search
from services.orchestrator.domain.search.stages import Stage


def search_notes(search: Search | None) -> Iterator[str]:
    if search is None:
        return
    size = search.space.size
    of_all = f"of {size} configurations" if size is not None else "of ranges without steps"
    first = "drawn at random"
    if search.stages:
        sizes = [f"{each.title}, {_stage_text(search, each)}" for each in search.stages]
        first = (
            f"in stages that hold the best of the one before: {'; '.join(sizes)}; then "
            "everything together"
        )
    elif search.rungs:
        sizes = [f"{each.experiments} with {_requests(each.divisor)}" for each in search.rungs]
        first = f"{sizes[0]} {first}, then the best of each rung: {', '.join(sizes[1:])}"
    elif search.drawn < search.experiments:
        first = f"{search.drawn} {first}, then each from the measurements so far (Optuna's TPE)"
    yield f"strategy '{search.strategy.value}': at most {search.experiments} {of_all}, {first}"


def _requests(divisor: int) -> str:
    return "all requests" if divisor == 1 else f"1/{divisor} of the requests"


def _stage_text(search: Search, stage: Stage) -> str:
    names = ", ".join(search.space.dimensions[number].name for number in stage.numbers)
    of_all = f" of {stage.size}" if stage.size is not None else ""
    return f"{stage.experiments}{of_all} ({names})"
