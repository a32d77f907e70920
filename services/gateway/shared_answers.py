"""One answer of an owner for all that ask the same at about the same time."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class SharedAnswers:
    """Every open page reads the same lists anew after an event, all at once.

    Who comes while the same is being answered shares the next answer with all that come meanwhile:
    it was asked for after each of them came, so that a client sees what it has changed before.
    """

    _current: dict[Hashable, asyncio.Task[Any]] = field(default_factory=dict)
    _next: dict[Hashable, asyncio.Task[Any]] = field(default_factory=dict)

    async def share(self, question: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        """Return what `ask` does, for one of those with the same question. Raises as it does."""
        answer = self._next.get(question)
        if answer is None:
            answer = self._next[question] = asyncio.ensure_future(self._ask(question, ask))
        result: T = await asyncio.shield(answer)
        return result

    async def _ask(self, question: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        if (current := self._current.get(question)) is not None:
            await asyncio.wait((current,))
        self._current[question] = self._next.pop(question)
        try:
            return await ask()
        finally:
            del self._current[question]
