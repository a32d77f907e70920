"""How much of prompts came before, as beginnings of earlier ones."""

from collections.abc import Hashable, Iterable


class Prefixes:
    """The beginnings of all prompts that were counted, as chains of their pieces.

    A piece counts as shared only behind the same pieces, as in an engine's prefix cache. Chains are
    kept by 64-bit hashes, of which two of 10^7 are equal in one of 10^5 runs.
    """

    def __init__(self) -> None:
        self._chains: set[int] = set()

    def count(self, pieces: Iterable[tuple[Hashable, int]], chain: int = 0) -> tuple[int, int]:
        """Keep a prompt of pieces, each with its size, that goes on behind `chain`.

        Returns the size of the leading ones that came before, and the chain of all.
        """
        shared = 0
        is_leading = True
        for piece, size in pieces:
            chain = hash((chain, piece, size))
            is_leading = is_leading and chain in self._chains
            if is_leading:
                shared += size
            self._chains.add(chain)
        return shared, chain
