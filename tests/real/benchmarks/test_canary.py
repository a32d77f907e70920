"""A level of known truth, by the built-in generator as a study begins with it."""

from collections.abc import Sequence
from typing import Any

from schemas.task.benchmark import BenchmarkTool
from shared.benchmarks.tools.adapter import BenchmarkFailed, Target
from shared.benchmarks.tools.canary import Canaries
from shared.benchmarks.tools.present import ADAPTERS

TARGET = Target(base_url="http://127.0.0.1:9", model_name="m")


class Counted:
    """An adapter that counts its runs, and fails the first of them."""

    label = BenchmarkTool.BUILTIN

    def __init__(self, failures: int = 0) -> None:
        self.urls: list[str] = []
        self.failures = failures

    async def run(self, spec: Any, target: Target, **options: Any) -> Any:
        self.urls.append(target.base_url)
        if len(self.urls) <= self.failures:
            raise BenchmarkFailed("broken")
        return await ADAPTERS[self.label].run(spec, target, **options)


def urls_differ(urls: Sequence[str]) -> bool:
    return all(url != TARGET.base_url for url in urls)


async def test_known_times_are_measured_once_for_a_study() -> None:
    canaries, adapter = Canaries(), Counted()

    first = await canaries.measure(adapter, TARGET)  # type: ignore[arg-type]
    second = await canaries.measure(adapter, TARGET)  # type: ignore[arg-type]

    assert first is not None
    assert first is second
    assert len(adapter.urls) == 1
    assert urls_differ(adapter.urls)
    # A mean is never below the truth by more than a clock's step; how far above is the host's.
    assert first.ttft_seconds > 0.049
    assert first.tpot_seconds > 0.009


async def test_tool_that_fails_is_tried_again_for_the_next() -> None:
    canaries, adapter = Canaries(), Counted(failures=1)

    assert await canaries.measure(adapter, TARGET) is None  # type: ignore[arg-type]
    assert await canaries.measure(adapter, TARGET) is not None  # type: ignore[arg-type]
