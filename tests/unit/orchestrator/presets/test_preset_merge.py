"""Presets of parameters: several as one, and as a task's."""

from typing import Any

import msgspec
import pytest

from schemas.orchestrator.presets import PresetView
from schemas.task.task_file import PresetMerge, TaskFile
from services.orchestrator.domain.presets.merge import merge, with_parameters_of
from services.orchestrator.domain.presets.release import RELEASE_PRESETS
from shared.errors import RefusedError
from tests.support.worlds.orchestrator_records import expand, make_file, make_offer, make_plan

RANGE = {"type": "integer", "low": 1, "high": 8, "step": 2}


def make(name: str, engine: Any = None, **parameters: Any) -> PresetView:
    return msgspec.convert(
        {
            "type": "orchestrator.preset",
            "namespace": "default",
            "name": name,
            "engine": engine,
            "parameters": parameters,
            "revision": 3,
        },
        PresetView,
    )


def plain(parameters: Any) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(parameters))
    return document


def merged(how: PresetMerge, *presets: PresetView) -> dict[str, Any]:
    return plain(merge(presets, how, "$.presets").parameters)


@pytest.mark.parametrize(
    ("how", "want"),
    [
        (PresetMerge.LAST_WINS, {"slots": [4, 2], "a": [1], "b": [2]}),
        (PresetMerge.UNION, {"slots": [1, 2, 4], "a": [1], "b": [2]}),
        (PresetMerge.INTERSECTION, {"slots": [2]}),
    ],
)
def test_presets_merge_by_last_all_or_common_values(how: PresetMerge, want: dict[str, Any]) -> None:
    presets = (make("one", slots=[1, 2], a=[1]), make("two", slots=[4, 2], b=[2]))

    found = merge(presets, how, "$.presets")

    assert plain(found.parameters) == want
    assert list(found.parameters) == list(want)
    [conflict] = found.conflicts
    assert (conflict.parameter, conflict.presets) == ("slots", ("one", "two"))


@pytest.mark.parametrize("how", list(PresetMerge))
def test_what_is_equal_is_no_conflict(how: PresetMerge) -> None:
    found = merge((make("one", slots=[1]), make("two", slots=[1])), how, "$.presets")

    assert (found.parameters, found.conflicts) == ({"slots": (1,)}, ())


@pytest.mark.parametrize("how", list(PresetMerge))
def test_spellings_of_one_parameter_are_one(how: PresetMerge) -> None:
    presets = (make("one", tp_size=[1, 2], **{"max-num-seqs": [8]}), make("two", **{
        "tensor-parallel-size": [2], "max_num_seqs": [8],
    }))  # fmt: skip

    found = merged(how, *presets)

    assert set(found) == {"tp_size", "max-num-seqs"}


def test_true_and_one_are_two_values() -> None:
    found = merged(PresetMerge.UNION, make("one", flag=[True]), make("two", flag=[1, 1.0]))

    assert [(type(each), each) for each in found["flag"]] == [(bool, True), (int, 1), (float, 1.0)]


def test_values_within_a_range_are_common() -> None:
    found = merged(PresetMerge.INTERSECTION, make("one", n=RANGE), make("two", n=[2, 3, 5, 9]))

    assert found == {"n": [3, 5]}


@pytest.mark.parametrize(
    ("how", "one", "two", "said"),
    [
        (PresetMerge.UNION, {"n": RANGE}, {"n": [1]}, "expected lists of values to unite"),
        (PresetMerge.INTERSECTION, {"n": [1]}, {"n": [2]}, "no value of n in common"),
        (PresetMerge.INTERSECTION, {"n": [1]}, {"m": [1]}, "a parameter in common, got one, two"),
        (
            PresetMerge.INTERSECTION,
            {"n": RANGE},
            {"n": {**RANGE, "high": 6}},
            "expected a list of values of n",
        ),
    ],
)
def test_what_cannot_be_merged_is_refused(
    how: PresetMerge, one: dict[str, Any], two: dict[str, Any], said: str
) -> None:
    with pytest.raises(RefusedError, match=said) as refused:
        merged(how, make("one", **one), make("two", **two))

    assert refused.value.path == "$.presets"


def test_presets_of_two_engines_are_refused() -> None:
    with pytest.raises(RefusedError, match="'one' is of vllm, 'two' is of sglang"):
        merged(PresetMerge.LAST_WINS, make("one", "vllm", n=[1]), make("two", "sglang", n=[1]))


def test_own_parameters_go_before_presets() -> None:
    task = make_file(parameters={"slots": [7]}, presets=["one", "two"])
    presets = merge(
        (make("one", Slots=[1], a=[1], b=[1]), make("two", a=[2])), PresetMerge.LAST_WINS, ""
    )

    changed, notes = with_parameters_of(task, presets)

    assert changed.parameters == {"a": (2,), "b": (1,), "slots": (7,)}
    assert notes == [
        "presets 'one' (revision 3), 'two' (revision 3): a, b",
        "presets: a is that of 'two', of 'one', 'two'",
        "parameters.slots takes the place of 'Slots' of the presets",
    ]
    again = msgspec.convert(msgspec.to_builtins(changed), TaskFile)
    assert (again.presets, again.parameters) == ((), changed.parameters)


def test_presets_keep_the_limit_of_parameters() -> None:
    task = make_file(parameters={f"n{n}": [1] for n in range(60)})
    fitting = merge((make("one", **{f"m{n}": [1] for n in range(4)}),), PresetMerge.LAST_WINS, "")
    presets = merge((make("one", **{f"m{n}": [1] for n in range(5)}),), PresetMerge.LAST_WINS, "")

    assert len(with_parameters_of(task, fitting)[0].parameters) == 64
    with pytest.raises(RefusedError, match="expected at most 64 parameters together, got 65"):
        with_parameters_of(task, presets)


@pytest.mark.parametrize("name", RELEASE_PRESETS)
def test_release_presets_fit_their_engine(name: str) -> None:
    preset = RELEASE_PRESETS[name]
    engine = preset.engine or ""
    file = make_file(deployment_mode="docker", base_runtime=engine, parameters={})
    task, _ = with_parameters_of(file, merge([preset], PresetMerge.LAST_WINS, ""))

    planned = make_plan(task, (make_offer(docker=(engine,)),))

    assert planned.missing == ()
    assert 1 < expand(task).total == len(planned.experiments) <= 16 or "memory" in name
