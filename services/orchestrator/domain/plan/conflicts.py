"""Configurations whose flags do not go together: left out, and refused where they are all."""

from collections import Counter
from collections.abc import Iterable, Iterator

from schemas.errors import ErrorCode
from shared.engines.conflicts import Conflict
from shared.errors import RefusedError, together


class Conflicts:
    """What was found in the configurations of a task."""

    def __init__(self) -> None:
        self._counts: Counter[Conflict] = Counter()

    def let_through(self, conflicts: Iterable[Conflict]) -> bool:
        """Note the conflicts of a configuration; return whether its engine would start."""
        listed = set(conflicts)
        self._counts.update(listed)
        return not any(conflict.is_fatal for conflict in listed)

    def refuse_unless(self, *, is_any_left: bool) -> None:
        """Raise RefusedError with all conflicts, by path, where no configuration is left."""
        refusals = [
            RefusedError(
                ErrorCode.BAD_REQUEST,
                f"{conflict.flag!r}: {conflict.reason}",
                path=f"$.parameters.{conflict.flag}",
            )
            for conflict in self._counts
            if conflict.is_fatal
        ]
        if refusals and not is_any_left:
            raise together(refusals)

    def notes(self) -> Iterator[str]:
        """Yield what is left out, and what makes no difference."""
        for conflict, count in self._counts.items():
            if conflict.is_fatal:
                which = "configuration" if count == 1 else "configurations"
                yield f"{count} {which} left out: {conflict.flag!r}: {conflict.reason}"
            else:
                yield f"{conflict.flag!r} {conflict.reason}"
