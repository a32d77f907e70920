"""Which engine of several a configuration runs, by what its parameters name it."""

from collections.abc import Mapping
from typing import Any, Final

from shared.engines.table import PROFILES

IMAGE_TAG: Final = "runtime_image_tag"
# An engine of a task over several in one version, by the values of these names.
VARIANT_NAMES: Final = ("base_runtime", "model", IMAGE_TAG)
ENV_PREFIX: Final = "env."
Variant = tuple[str | None, str | None, str | None]
SINGLE: Final[Variant] = (None, None, None)  # the engine of a task that has one


def variant_of(parameters: Mapping[str, Any]) -> Variant:
    """Return which engine an experiment with these parameters ran."""
    base_runtime, model, tag = map(parameters.get, VARIANT_NAMES)
    return base_runtime, model, tag


def title_of(variant: Variant) -> str:
    """Return an engine's name for people: `vLLM v0.18.0`, with its model where that is its own."""
    base_runtime, model, tag = variant
    profile = PROFILES.get((base_runtime or "").casefold())
    name = base_runtime or "" if profile is None else profile.title
    name = f"{name} {tag}" if tag is not None else name
    return f"{name} ({model})" if model is not None else name


def flags_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a configuration sets beside its engine."""
    return {name: value for name, value in parameters.items() if name not in VARIANT_NAMES}
