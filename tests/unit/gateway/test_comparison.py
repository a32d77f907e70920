"""Experiments of any tasks side by side."""

from msgspec.structs import replace

from schemas.gateway.comparison import ComparedRow, ExperimentComparison, RowKind
from schemas.gateway.views import ExperimentDetail, MeasuredMetrics
from schemas.task.trust import RunInfo, RunSetting, TrustedConfiguration, TrustVerdict
from services.gateway.domain.comparison import Pair, compare
from tests.support.worlds.gateway_views import make_experiment, make_task


def pair(ordinal: int, gpu: str = "H100", ttft: float = 1.0, trust: bool = False) -> Pair:
    view = make_experiment(
        ordinal,
        metrics=MeasuredMetrics(mean_ttft=ttft),
        run=RunInfo(setting=RunSetting(gpu_models=(gpu,))),
    )
    detail = ExperimentDetail(**{name: getattr(view, name) for name in view.__struct_fields__})
    engine = replace(detail.engine, parameters={"slots": ordinal, "dtype": "auto"})
    verdict = TrustVerdict(
        winner=ordinal,
        repeated=(TrustedConfiguration(ordinal=ordinal, runs=3, mean_score=1.0),),
    )
    return replace(detail, engine=engine), make_task(trust=verdict if trust else None)


def row(comparison: ExperimentComparison, name: str) -> ComparedRow:
    [found] = [row for row in comparison.rows if row.name == name]
    return found


def test_other_hardware_is_marked_as_a_caution() -> None:
    comparison = compare([pair(1), pair(2, gpu="H200")])

    assert row(comparison, "GPU model").texts == ("H100", "H200")
    assert row(comparison, "GPU model").differs
    assert comparison.cautions == ("GPU model differs: results may differ by it",)


def test_parameters_alone_differ_without_a_caution() -> None:
    comparison = compare([pair(1), pair(2)])

    rows = {row.name: row.differs for row in comparison.rows if row.kind is RowKind.PARAMETER}
    assert rows == {"slots": True, "dtype": False}
    assert comparison.cautions == ()


def test_the_best_result_is_named_unless_it_is_a_tie() -> None:
    shorter = row(compare([pair(1, ttft=0.5), pair(2, ttft=0.4)]), "time to first token, mean")
    tie = row(compare([pair(1), pair(2)]), "time to first token, mean")

    assert (shorter.values, shorter.best, shorter.texts) == ((0.5, 0.4), 1, ("0.5", "0.4"))
    assert (tie.best, tie.differs) == (None, False)


def test_trust_says_how_often_and_whether_it_won() -> None:
    comparison = compare([pair(1, trust=True), pair(2)])

    assert row(comparison, "runs").texts == ("measured 3 times, the winner of its task", None)


def test_rows_that_no_experiment_has_are_left_out() -> None:
    names = {row.name for row in compare([pair(1), pair(2)]).rows}

    assert "tokens per joule" not in names
    assert "image digest" not in names
