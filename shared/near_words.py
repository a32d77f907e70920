"""The word that somebody may have meant, of those that are known."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

LIKENESS: Final = 0.7  # of 1; two of three letters may be another's
PART_LENGTH: Final = 4
NODES_SHOWN: Final = 8


def nearest(word: str, names: Iterable[str]) -> str | None:
    """Return the known word that is most like this one, letter case and `_` aside.

    Else the only one of which it is a part, as `grid` of `grid_search`.
    """
    by_form = {_form(name): name for name in names}
    form = _form(word)
    matches = get_close_matches(form, by_form, n=1, cutoff=LIKENESS)
    if not matches and len(form) >= PART_LENGTH:
        matches = [name for name in by_form if form in name.split("-")]
    return by_form[matches[0]] if len(matches) == 1 else None


def unknown_node(node_id: str, nodes: Iterable[str]) -> str:
    """Return the sentence about a node that is not among these."""
    node_ids = sorted(nodes)
    listed = ", ".join(node_ids[:NODES_SHOWN]) + (", ..." if len(node_ids) > NODES_SHOWN else "")
    return (
        f"no node {node_id}{did_you_mean(node_id, node_ids)}; `gpusteward nodes` lists those that "
        f"there are ({listed or 'none'}), a new one as soon as `gpusteward agent` runs there"
    )


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return `; did you mean 'vllm'?`, or nothing where no known word is like it."""
    suggestion = nearest(word, names)
    return (
        f"; did you mean {suggestion!r}?" if suggestion is not None and suggestion != word else ""
    )


def _form(word: str) -> str:
    return word.casefold().replace("_", "-")
