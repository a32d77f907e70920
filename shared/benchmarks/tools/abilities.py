"""Which tool can do what of each modality, in one table."""

from collections.abc import Mapping
from typing import Final

from schemas.task.benchmark import BenchmarkSettings, BenchmarkTool
from schemas.task.modality import Modality, modality_of
from shared.benchmarks.traffic import UnsupportedTraffic

_TITLES: Final = {BenchmarkTool.GENAI_BENCH: "genai-bench", BenchmarkTool.AIPERF: "AIPerf"}
_CHAT: Final = frozenset(
    {"arrivals", "prefix_share", "load_search", "adapters", "num_concurrency", "quality"}
)
_CONVERSATIONS: Final = frozenset({"turns", "think_seconds", "dataset", "trace"})
_WHOLE: Final = frozenset({"arrivals", "load_search", "num_concurrency", "batch_size"})
_NO_ADAPTERS: Final = frozenset({"adapters"})  # AIPerf sends all requests to one model here
# What a task may ask for beside its scenarios, by the tools that serve it. genai-bench sends
# embeddings and rerank one after the other, and searches batch sizes instead.
ABILITIES: Final[Mapping[BenchmarkTool, Mapping[Modality, frozenset[str]]]] = {
    BenchmarkTool.BUILTIN: {
        Modality.TEXT: _CHAT | _CONVERSATIONS,
        Modality.IMAGES: _CHAT,
        Modality.EMBEDDINGS: _WHOLE,
        Modality.RERANK: _WHOLE,
    },
    BenchmarkTool.AIPERF: {
        Modality.TEXT: (_CHAT | _CONVERSATIONS) - _NO_ADAPTERS,
        Modality.IMAGES: _CHAT - _NO_ADAPTERS,
        Modality.EMBEDDINGS: _WHOLE,
        Modality.RERANK: _WHOLE,
    },
    BenchmarkTool.GENAI_BENCH: {
        Modality.TEXT: frozenset({"dataset", "num_concurrency", "quality"}),
        Modality.IMAGES: frozenset({"num_concurrency", "quality"}),
        Modality.EMBEDDINGS: frozenset({"batch_size"}),
        Modality.RERANK: frozenset({"batch_size"}),
    },
}
SCENARIOS: Final = "traffic_scenarios"  # stands for the modality itself


def list_asked(spec: BenchmarkSettings) -> list[str]:
    """Return the names of the fields beside the scenarios that ask something of the tool."""
    requested = {
        "arrivals": spec.arrivals,
        "prefix_share": spec.prefix_share,
        "turns": spec.turns > 1,
        "think_seconds": spec.think_seconds,
        "load_search": spec.load_search,
        "dataset": spec.dataset,
        "trace": spec.trace,
        "adapters": spec.adapters,
        "quality": spec.quality is not None and not spec.quality.is_off,
        "batch_size": spec.batch_size > 1,
        "num_concurrency": spec.num_concurrency != (1,),
    }
    return [name for name, value in requested.items() if value]


def list_unserved(spec: BenchmarkSettings, tool: BenchmarkTool) -> list[str]:
    """Return the names of the fields that the tool cannot serve: the scenarios, where it has none
    of their modality.
    """
    served = ABILITIES[tool].get(spec.modality)
    if served is None:
        return [SCENARIOS]
    return [name for name in list_asked(spec) if name not in served]


def check_abilities(spec: BenchmarkSettings, tool: BenchmarkTool) -> None:
    """Raises UnsupportedTraffic for scenarios of several modalities, and for what the tool cannot
    do.
    """
    modality = spec.modality
    for scenario in spec.traffic_scenarios:
        if modality_of(scenario) is not modality:
            raise UnsupportedTraffic(
                f"expected scenarios of one kind, got {spec.traffic_scenarios[0]!r} "
                f"({modality.value}) and {scenario!r} ({modality_of(scenario).value}): give each "
                "kind a task of its own",
                "$.benchmark.traffic_scenarios",
            )
    if spec.task not in (Modality.TEXT.traits.task, modality.traits.task):
        raise UnsupportedTraffic(
            f"expected {modality.traits.task!r}, the task of {spec.traffic_scenarios[0]!r}, or "
            f"none, got {spec.task!r}",
            "$.benchmark.task",
        )
    for name in list_unserved(spec, tool):
        raise UnsupportedTraffic(_refuse(modality, tool, name), f"$.benchmark.{name}")


def _refuse(modality: Modality, tool: BenchmarkTool, name: str) -> str:
    able = [
        repr(other.value)
        for other, by_modality in ABILITIES.items()
        if modality in by_modality and (name == SCENARIOS or name in by_modality[modality])
    ]
    what = modality.value if name == SCENARIOS else f"{name} with {modality.value}"
    if not able:
        return f"expected no {what}, which no tool can send"
    expected = f"expected {' or '.join(able)} for {what}"
    return f"{expected}, as {_TITLES.get(tool, tool.value)} cannot do this"
