"""A benchmark as people write it: the block of a task file, or the executor's own names."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from schemas.errors import ErrorCode
from schemas.task.benchmark import BenchmarkSpec, TrafficScenario
from shared.errors import RefusedError

OF_TASK_FILES: Final = {
    "max_time_per_iteration": ("max_time_per_level_seconds", 60.0),
    "max_requests_per_iteration": ("max_requests_per_level", 1),
}


def read_spec(document: Mapping[str, Any]) -> BenchmarkSpec:
    """The benchmark that a document asks for; minutes of a task file become seconds.

    Raises RefusedError naming the field that is unknown, given twice or has a wrong value.
    """
    fields: dict[str, Any] = {}
    for name, value in document.items():
        field, factor = OF_TASK_FILES.get(name, (name, 1))
        if field not in BenchmarkSpec.__struct_fields__:
            names = ", ".join([*BenchmarkSpec.__struct_fields__, *OF_TASK_FILES])
            raise _refusal(name, f"unknown field {name!r}; known: {names}")
        if field in fields:
            raise _refusal(name, f"{name!r} is given twice, under two names")
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        fields[field] = value * factor if is_number and factor != 1 else value
    for scenario in fields.get("traffic_scenarios", ()):
        try:
            msgspec.convert(scenario, TrafficScenario)
        except msgspec.ValidationError:
            raise _refusal(
                "traffic_scenarios",
                f"expected a scenario like D(100,100) or U(50,100)/(200,250), got {scenario!r}",
            ) from None
    try:
        return msgspec.convert(fields, BenchmarkSpec)
    except msgspec.ValidationError as error:
        raise RefusedError(ErrorCode.BAD_REQUEST, f"the benchmark: {error}") from error


def _refusal(name: str, message: str) -> RefusedError:
    return RefusedError(ErrorCode.BAD_REQUEST, message, path=f"$.{name}")
