"""What an hour of a GPU costs."""

from schemas.base import Query, View


class GetGpuPrices(Query, frozen=True, kw_only=True, tag="results.get_gpu_prices"):
    """Answered by `GpuPrices`."""


class GpuPrices(View, frozen=True, kw_only=True, tag="results.gpu_prices"):
    """`hourly` by parts of models' names in lower case, of which the longest counts."""

    hourly: dict[str, float]
    currency: str
