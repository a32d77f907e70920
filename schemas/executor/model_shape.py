"""How large a model is, by its config.json."""

from msgspec import Struct

from schemas.base import Count, PositiveInt


class ModelShape(Struct, frozen=True, kw_only=True):
    """`weights` are all of it, `active_weights` those that a token passes through: fewer with
    experts. `cached_values` are the keys and values of a token in all layers.
    """

    weights: PositiveInt
    active_weights: PositiveInt
    cached_values: Count
    layers: PositiveInt
