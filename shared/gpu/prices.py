"""What an hour of a GPU costs, by its model."""

from collections.abc import Mapping

from shared.gpu.model_names import matches_model


def parse_prices(text: str) -> dict[str, float]:
    """`H200=3.5, A100=1.8`: parts of models' names. Raises ValueError for anything else."""
    prices: dict[str, float] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, sign, price = entry.rpartition("=")
        if not sign or not name.strip():
            raise ValueError(f"expected MODEL=PRICE, found {entry!r}")
        prices[name.strip().casefold()] = float(price)
        if not 0 <= prices[name.strip().casefold()] < float("inf"):
            raise ValueError(f"expected a price of 0 or more, found {entry!r}")
    return prices


def price_of(model: str, prices: Mapping[str, float]) -> float | None:
    """Return the price of the longest name that is part of the model's name; None if there is
    none.
    """
    parts = [part for part in prices if matches_model(model, [part])]
    return prices[max(parts, key=len)] if parts else None
