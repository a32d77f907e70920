"""Known conflicts of programs with how GPUs are given, and the environment that avoids them."""

import re
from typing import Final

from msgspec import Struct

from schemas.gpus.checks import GpuMode
from shared.accelerator_rules.modes import FORMS


class Advice(Struct, frozen=True, kw_only=True):
    """Of images whose reference matches, where GPUs are given in a mode."""

    name: str
    image: re.Pattern[str]
    modes: frozenset[GpuMode]
    environment: dict[str, str]
    because: str
    source: str


ADVICE: Final = (
    Advice(
        name="paddle_autogrow",
        image=re.compile(r"paddle|fastdeploy", re.IGNORECASE),
        modes=frozenset({GpuMode.VGPU, GpuMode.HAMI}),
        environment={"FLAGS_allocator_strategy": "naive_best_fit"},
        because="Paddle's autogrow allocates in pieces, which a virtual GPU's memory cannot map:"
        " it runs out of memory or crashes",
        source="accelerator guide, Paddle Autogrow Memory Allocation Crash on GPU-Manager",
    ),
)


def advise_environment(image: str, resource: str) -> dict[str, str]:
    """Return the variables recommended for a container of this image whose GPUs this resource
    counts.
    """
    modes = {
        form.mode
        for form in FORMS
        if resource and resource in (form.resource, form.memory_resource)
    }
    environment: dict[str, str] = {}
    for advice in ADVICE:
        if advice.modes & modes and advice.image.search(image):
            environment |= advice.environment
    return environment
