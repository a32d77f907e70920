"""How an experiment stands to what it has to meet."""

from msgspec import Struct

from schemas.quality import QualityVerdict


class ConstraintCheck(Struct, frozen=True, kw_only=True):
    """A constraint at the `load` that is farthest from meeting it.

    `excess` is how far `actual` is beyond the bound, as a share of it: 0, it is met at every load;
    None, it was not measured. Seconds, shares from 0 to 1, rates per second.
    """

    constraint: str
    load: str = ""
    actual: float | None = None
    excess: float | None = None


class SloVerdict(Struct, frozen=True, kw_only=True):
    """`penalty` is the sum of the weighted SLO's penalties, already in the score; `failed_because`:
    the experiment failed, although it was measured. `max_goodput`: requests per second within every
    bound of a time at once; None without constraints. `quality` None: no answers were compared.
    """

    constraints: tuple[ConstraintCheck, ...] = ()
    penalty: float = 0.0
    failed_because: str = ""
    max_goodput: float | None = None
    quality: QualityVerdict | None = None
