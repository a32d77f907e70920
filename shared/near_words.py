"""The word that somebody may have meant, of those that are known."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

LIKENESS: Final = 0.7  # of 1; two of three letters may be another's


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that is most like this one, letter case and `_` aside."""
    by_form = {_form(name): name for name in known}
    found = get_close_matches(_form(word), by_form, n=1, cutoff=LIKENESS)
    return by_form[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'vllm'?`, or nothing where no known word is like it."""
    meant = nearest(word, known)
    return f"; did you mean {meant!r}?" if meant is not None and meant != word else ""


def _form(word: str) -> str:
    return word.casefold().replace("_", "-")
