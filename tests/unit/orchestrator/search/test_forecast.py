"""What AIConfigurator predicts orders first proposals; its answers here were recorded."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from schemas.task.objectives import Objective
from services.orchestrator.domain.configurations import Point
from services.orchestrator.domain.plan.expansion import find_axes
from services.orchestrator.domain.search.forecast import (
    Correction,
    Forecast,
    Forecasts,
    Question,
    engine_asked,
    learn_correction,
    say_corrections,
)
from services.orchestrator.domain.search.prior import (
    Prior,
    ask_about,
    predict,
    predict_score,
    questions_about,
)
from services.orchestrator.domain.search.space import space_of
from tests.support.worlds.orchestrator_records import make_file
from tests.unit.orchestrator.search.test_prior import point, prior, run, search

RECORDED = Path(__file__).parents[2] / "benchmarks" / "tools" / "aiconfigurator-0.12.0.json"
MODEL = "meta-llama/Meta-Llama-3.1-8B"


def recorded_forecasts(**changes: Any) -> Forecasts:
    """What was recorded of vLLM on an H100."""
    rows = json.loads(RECORDED.read_text())["recorded"]
    return Forecasts(
        system="h100_sxm",
        answers={
            Question(
                engine=asked["backend_name"],
                model=asked["model_path"],
                tp=asked["tp_size"],
                pp=asked["pp_size"],
                batch=asked["batch_size"],
                gemm=asked.get("gemm_quant_mode", ""),
                kvcache=asked.get("kvcache_quant_mode", ""),
            ).key: Forecast(ttft=answer["ttft_ms"] / 1000, tpot=answer["tpot_ms"] / 1000)
            for asked, answer in ((row["question"], row["answer"]) for row in rows)
            if asked["system_name"] == "h100_sxm" and "problem" not in answer
        },
        **changes,
    )


def predicted_prior(**changes: Any) -> Prior:
    fields = {"engine": "vllm", "model": MODEL, "forecasts": recorded_forecasts(), **changes}
    return prior(**fields)


def test_prediction_is_that_of_the_tool() -> None:
    found = predict(predicted_prior(), point(tensor_parallel_size=2), 64)

    assert (found.ttft, found.tpot) == pytest.approx((0.075911, 0.009813), rel=1e-4)
    assert found.e2e == pytest.approx(found.ttft + 200 * found.tpot)
    assert found.fits


def test_requests_beyond_the_batch_wait_for_it() -> None:
    turn = predict(predicted_prior(), point(), 8)
    waiting = predict(predicted_prior(), point(max_num_seqs=8), 64)

    assert waiting.e2e == pytest.approx(8 * turn.e2e)


@pytest.mark.parametrize(
    ("unknown", "changes"),
    [
        (point(tensor_parallel_size=3), {}),
        (point(), {"model": "acme/unknown-7b"}),
        (point(), {"engine": "llamacpp"}),
        (point(quantization="awq"), {}),
    ],
)
def test_what_it_cannot_predict_has_no_order(unknown: Point, changes: dict[str, Any]) -> None:
    given = predicted_prior(**changes)

    assert given.order(unknown) is None
    assert predict_score(given, unknown) is None


def test_first_proposal_is_the_best_predicted() -> None:
    (first,) = run(search("auto", predicted_prior(objective=Objective.MINIMIZE_LATENCY)), 1)

    assert first.point.parameters["tensor-parallel-size"] == 8
    assert "AIConfigurator for H100" in first.reason


def test_engines_are_compared_by_their_own_corrections() -> None:
    vllm, sglang = (replace(point(), engine={"base_runtime": name}) for name in ("vllm", "sglang"))
    plain = predicted_prior(loads=(8,))
    learned = {"sglang": Correction(ratio=2.0, experiments=5)}
    corrected = replace(plain, forecasts=recorded_forecasts(corrections=learned))
    scores = [predict_score(given, sglang) for given in (plain, corrected)]
    orders = [(given.order(sglang), given.order(vllm)) for given in (plain, corrected)]

    assert scores[0] is not None
    assert scores[1] == pytest.approx(2 * scores[0])
    assert [a < b for a, b in orders if a is not None and b is not None] == [True, False]
    assert say_corrections(corrected.forecasts or recorded_forecasts()) == (
        "sglang times 2, learned from 5 experiments"
    )


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([], None),
        ([(1.0, 2.0), (2.0, 4.0)], None),
        ([(1.0, 1.5), (2.0, 4.0), (1.0, 90.0)], Correction(ratio=2.0, experiments=3)),
        ([(1.0, 1e6)] * 3, Correction(ratio=10.0, experiments=3)),
        ([(0.0, 1.0), (1.0, 0.0), (1.0, 1.0), (2.0, 2.0)], None),
    ],
)
def test_error_is_the_middle_of_ratios(
    scores: list[tuple[float, float]], expected: Correction | None
) -> None:
    assert learn_correction(scores) == expected


@pytest.mark.parametrize(
    ("name", "engine"),
    [("vllm", "vllm"), ("SGLang-llama-small", "sglang"), ("trtllm", "trtllm"), ("vllmx", None)],
)
def test_engine_follows_from_the_runtime(name: str, engine: str | None) -> None:
    assert engine_asked(name) == engine


def test_each_question_is_asked_once() -> None:
    file = make_file(
        parameters={"tensor-parallel-size": [1, 2], "max-num-seqs": [8, 256], "seed": [1, 2, 3]}
    )
    space = space_of(find_axes(file))
    given = predicted_prior(loads=(4, 64))

    questions = questions_about(given, space, 100)

    # Four requests at once fill neither batch.
    assert len(questions) == len(set(questions)) == 2 * 3
    assert len(questions_about(given, space, 2)) == 2
    fp8 = ask_about(given, point(quantization="fp8", kv_cache_dtype="fp8_e4m3"), 4)
    assert fp8 is not None
    assert fp8.arguments("h100_sxm", 999.6, 1.0) == {
        "model_path": MODEL,
        "system_name": "h100_sxm",
        "backend_name": "vllm",
        "isl": 1000,
        "osl": 2,
        "tp_size": 1,
        "pp_size": 1,
        "batch_size": 4,
        "gemm_quant_mode": "fp8",
        "kvcache_quant_mode": "fp8",
    }
