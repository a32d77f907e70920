"""A roofline orders first proposals, and is never more than that."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from schemas.executor.attempts import Runtime, RuntimeOffer
from schemas.executor.model_shape import ModelShape
from schemas.orchestrator.experiments import ExperimentState
from schemas.task.objectives import Objective
from services.orchestrator.domain.configurations import Point
from services.orchestrator.domain.installation.installation import Installation
from services.orchestrator.domain.installation.offers import Offer
from services.orchestrator.domain.plan.plan import make_search
from services.orchestrator.domain.search.history import trials_of
from services.orchestrator.domain.search.prior import (
    DEFAULT_GPU,
    Prior,
    make_prior,
    predict,
    predict_score,
)
from services.orchestrator.domain.search.propose import propose
from services.orchestrator.domain.search.search import Proposal, Search, Waiting
from services.orchestrator.domain.search.strategies.bayesian import PRIOR_PROPOSALS
from services.orchestrator.planning.task_prior import prior_for
from services.orchestrator.planning.whole_plan import Surroundings, make_whole_plan
from shared.errors import RefusedError
from tests.benchmarks.search import past_of
from tests.support.worlds.orchestrator_records import OFFERS, make_file

LLAMA_8B = ModelShape(
    weights=8_030_000_000, active_weights=7_500_000_000, cached_values=65_536, layers=32
)
FLAGS: dict[str, Any] = {
    "tensor-parallel-size": [1, 2, 4, 8],
    "max-num-seqs": [8, 64],
    "schedule-policy": ["lpm", "fcfs"],
}


def prior(**overrides: Any) -> Prior:
    fields: dict[str, Any] = {
        "shape": LLAMA_8B,
        "gpu": DEFAULT_GPU,
        "objective": Objective.MINIMIZE_LATENCY,
        "input_tokens": 1000.0,
        "output_tokens": 200.0,
        "loads": (64,),
        **overrides,
    }
    return Prior(**fields)


def point(**parameters: Any) -> Point:
    named = {name.replace("_", "-"): value for name, value in parameters.items()}
    return Point(quant={}, parallel={}, parameters=named)


def search(strategy: str, given: Prior | None, n_initial_random: int = 8) -> Search:
    optimization = {
        "strategy": strategy,
        "seed": 3,
        "n_initial_random": n_initial_random,
        "max_iterations": 12,
    }
    found = make_search(make_file(parameters=FLAGS, optimization=optimization), prior=given)
    assert found is not None
    return found


def usual(proposal: Proposal) -> float:
    return 1.0 + proposal.ordinal


def run(
    found: Search, most: int, scored: Callable[[Proposal], float | None] = usual
) -> list[Proposal]:
    proposals: list[Proposal] = []
    while len(proposals) < most:
        past = [past_of(each.ordinal, each.point, scored(each)) for each in proposals]
        trials = trials_of((Objective.MINIMIZE_LATENCY,), found.space, past)
        proposal = propose(found, trials, lambda _: True)
        assert isinstance(proposal, Proposal)
        proposals.append(proposal)
    return proposals


def test_decoding_is_bound_by_weights_read() -> None:
    alone = predict(prior(), point(), 1)

    # 15 GB of weights that count, and a cache of 0.14 GB, at 3.35 TB/s.
    assert alone.tpot == pytest.approx((15.0e9 + 1100 * 131_072) / 3.35e12, rel=0.001)
    assert alone.ttft == pytest.approx(2 * 7.5e9 * 1000 / 989e12, rel=0.001)
    assert alone.e2e == pytest.approx(alone.ttft + 200 * alone.tpot)


def test_requests_beyond_the_batch_wait_a_turn() -> None:
    turn, waiting = predict(prior(), point(), 8), predict(prior(), point(max_num_seqs=8), 64)

    assert waiting.tpot == turn.tpot
    assert waiting.e2e == pytest.approx(8 * turn.e2e)
    assert waiting.ttft == pytest.approx(turn.ttft + 7 * turn.e2e / 2)
    assert waiting.tokens_per_second == pytest.approx(turn.tokens_per_second)
    assert turn.tokens_per_second == pytest.approx(8 * 1200 / turn.e2e)
    assert turn.output_per_second == pytest.approx(8 * 200 / turn.e2e)


def test_single_requests_wait_for_all_before() -> None:
    alone, one_by_one = predict(prior(), point(), 1), predict(prior(), point(max_num_seqs=1), 8)

    assert one_by_one.e2e == pytest.approx(8 * alone.e2e)


@pytest.mark.parametrize(
    ("name", "bytes_each"),
    [("float32", 4), ("fp8", 1), ("int8", 1), ("w8a8", 1), ("awq", 0.5), ("gptq_marlin", 0.5)],
)
def test_weights_have_the_bytes_of_their_format(name: str, bytes_each: float) -> None:
    given = prior(shape=replace(LLAMA_8B, cached_values=0))
    usual = predict(given, point(), 1)

    assert predict(given, point(quantization=name), 1).tpot == pytest.approx(
        usual.tpot * bytes_each / 2
    )


def test_the_cache_has_to_fit_beside_the_weights() -> None:
    """70 GB of weights, and 44 MB of cache for each request, in 72 of 80 GB."""
    given = prior(
        shape=ModelShape(
            weights=35_000_000_000, active_weights=35_000_000_000, cached_values=20_000, layers=80
        )
    )

    assert predict(given, point(), 45).fits
    assert not predict(given, point(), 46).fits


def test_loads_have_mean_times_and_top_throughput() -> None:
    loads = (1, 64)
    alone, many = (predict(prior(), point(), load) for load in loads)

    found = {
        each: predict_score(prior(objective=each, loads=loads), point())
        for each in (Objective.MINIMIZE_LATENCY, Objective.MAXIMIZE_THROUGHPUT)
    }

    assert found[Objective.MINIMIZE_LATENCY] == pytest.approx((alone.e2e + many.e2e) / 2)
    assert found[Objective.MAXIMIZE_THROUGHPUT] == many.tokens_per_second > alone.tokens_per_second
    by_output = prior(objective=Objective.MAXIMIZE_TOKENS_PER_JOULE, loads=loads).order(point())
    assert by_output == -many.output_per_second


def test_replicas_share_requests_stages_share_speed() -> None:
    half, replicas = predict(prior(), point(), 5), predict(prior(), point(dp=2), 9)
    stages = predict(prior(), point(pp=2), 5)

    assert (replicas.tpot, replicas.e2e) == (half.tpot, half.e2e)
    assert replicas.tokens_per_second == pytest.approx(9 / 2 * 1200 / half.e2e)
    assert stages.e2e == half.e2e
    assert stages.tokens_per_second == pytest.approx(half.tokens_per_second / 2)


def test_tensor_parallelism_pays_for_communication() -> None:
    alone, both = predict(prior(), point(), 1), predict(prior(), point(tp=2), 1)

    assert both.tpot == pytest.approx(alone.tpot / 2 + 2 * 32 * 1e-5)
    assert both.ttft == pytest.approx(alone.ttft / 2 + 2 * 32 * 1e-5)


def test_batch_reads_more_experts_up_to_all() -> None:
    experts = ModelShape(
        weights=30_000_000_000, active_weights=3_000_000_000, cached_values=0, layers=48
    )

    steps = [predict(prior(shape=experts), point(), load).tpot for load in (1, 2, 10, 20)]

    assert steps[0] == pytest.approx(2 * 3e9 / 3.35e12, rel=0.001)
    assert [step / steps[0] for step in steps] == pytest.approx([1, 2, 10, 10])


def test_a_large_batch_is_bound_by_arithmetic() -> None:
    small = replace(LLAMA_8B, cached_values=0)

    found = predict(prior(shape=small), point(), 1000)

    assert found.tpot == pytest.approx(2 * 7.5e9 * 1000 / 989e12, rel=0.001)


@pytest.mark.parametrize("value", [0, -1, "2", 1.5, None])
def test_a_degree_that_is_none_counts_as_one(value: Any) -> None:
    assert predict(prior(), point(tp=value, dp=value), 8) == predict(prior(), point(), 8)


def test_unpredicted_score_falls_back_to_output() -> None:
    given = prior(objective=Objective.MAXIMIZE_TOKENS_PER_JOULE)
    one, more = point(), point(tp=8)

    assert predict_score(given, one) is None
    assert given.order(one) == -predict(given, one, 64).output_per_second
    assert (given.order(one) or 0) < (given.order(more) or 0)
    assert prior(objective=Objective.MAXIMIZE_THROUGHPUT).order(one) == pytest.approx(
        -predict(given, one, 64).tokens_per_second
    )


@pytest.mark.parametrize(
    ("better", "than", "objective"),
    [
        (
            {"tensor_parallel_size": 4},
            {"tensor_parallel_size": 2},
            Objective.MINIMIZE_LATENCY,
        ),
        ({"tensor_parallel_size": 1}, {"tensor_parallel_size": 8}, Objective.MAXIMIZE_THROUGHPUT),
        ({"max_num_seqs": 64}, {"max_num_seqs": 8}, Objective.MINIMIZE_LATENCY),
        ({"quantization": "fp8"}, {}, Objective.MINIMIZE_TPOT),
        ({"kv_cache_dtype": "fp8_e5m2"}, {}, Objective.MINIMIZE_TPOT),
    ],
)
def test_what_should_be_better_is_foreseen_better(
    better: dict[str, Any], than: dict[str, Any], objective: Objective
) -> None:
    given = prior(objective=objective)
    one, other = (predict_score(given, point(**each)) for each in (better, than))

    assert one is not None
    assert other is not None
    assert one > other if objective.is_maximized else one < other


def test_oversized_configuration_is_not_predicted() -> None:
    large = ModelShape(
        weights=70_000_000_000, active_weights=70_000_000_000, cached_values=163_840, layers=80
    )

    assert predict_score(prior(shape=large), point(tp=1)) is None
    assert predict_score(prior(shape=large), point(tp=4)) is not None


def test_early_proposals_alternate_with_predictions() -> None:
    given = prior()
    proposals = run(search("bayesian", given), PRIOR_PROPOSALS + 2)

    foreseen = [each for each in proposals if "roofline of H100" in each.reason]
    assert [each.ordinal for each in foreseen] == [1, 3, 5]
    assert foreseen[0].point.parameters["tensor-parallel-size"] == 8
    scores = [predict_score(given, each.point) or 0.0 for each in foreseen]
    assert scores == sorted(scores)


def test_no_more_is_foreseen_than_would_be_drawn() -> None:
    proposals = run(search("bayesian", prior(), n_initial_random=3), PRIOR_PROPOSALS)

    assert [each.ordinal for each in proposals if "roofline" in each.reason] == [1, 3]


@pytest.mark.parametrize(
    ("of_foreseen", "of_middle", "is_right"),
    [
        pytest.param(1.0, 2.0, True, id="better"),
        pytest.param(2.0, 1.0, False, id="worse"),
        pytest.param(1.0, 1.0, True, id="as good, and first"),
        pytest.param(1.0, None, True, id="the middle fails"),
        pytest.param(None, 1.0, False, id="it fails"),
        pytest.param(None, None, False, id="both fail"),
    ],
)
def test_stages_begin_with_a_better_prediction(
    of_foreseen: float | None, of_middle: float | None, is_right: bool
) -> None:
    found = search("auto", prior())

    def scored(each: Proposal) -> float | None:
        return {1: of_foreseen, 2: of_middle}.get(each.ordinal, 9.0)

    foreseen, middle, third = (each.point.parameters for each in run(found, 3, scored))

    assert (foreseen["tensor-parallel-size"], foreseen["max-num-seqs"]) == (8, 64)
    assert (middle["tensor-parallel-size"], middle["max-num-seqs"]) == (2, 8)
    assert third["max-num-seqs"] == (64 if is_right else 8)
    assert run(search("auto", None), 1)[0].point.parameters == middle


def test_uncountable_space_is_sampled() -> None:
    """Also in one that can, of which there is too much."""
    for more in (
        {"fraction": {"type": "continuous", "low": 0.5, "high": 0.9}},
        {"seed": {"type": "integer", "low": 1, "high": 10_000}},
    ):
        found = make_search(
            make_file(parameters=FLAGS | more, optimization={"strategy": "bayesian"}),
            prior=prior(),
        )
        assert found is not None
        (first,) = run(found, 1)
        assert first.point.parameters["tensor-parallel-size"] == 8
        assert "roofline of H100" in first.reason


def test_stages_wait_for_prediction_and_middle() -> None:
    found = search("auto", prior())
    first = run(found, 2)
    past = [past_of(each.ordinal, each.point, 1.0) for each in first]
    past[1] = replace(past[1], state=ExperimentState.RUNNING, scored=None)

    trials = trials_of((Objective.MINIMIZE_LATENCY,), found.space, past)

    assert isinstance(propose(found, trials, lambda _: True), Waiting)


def offers(shapes: dict[str, ModelShape]) -> Installation:
    runtime = RuntimeOffer(
        runtime=Runtime.PROCESS, engines=("vllm",), model_roots=("/models",), model_shapes=shapes
    )
    return Installation([Offer(executor_id="n1", runtimes=(runtime,))])


def test_config_of_an_executor_tells_the_model() -> None:
    wanted = {"strategy": "bayesian", "prior": "roofline"}
    task = make_file(
        model={"id_or_path": "/models/llama"},
        optimization=wanted,
        gpus={"models": ["mine", "A100-SXM4-80GB"]},
    )

    known, notes = prior_for(task, offers({"llama": LLAMA_8B}))
    unknown, why = prior_for(task, offers({}))

    assert known is not None
    assert (known.gpu.model, known.input_tokens) == ("A100-SXM4-80GB", 100.0)
    assert notes == ("prior: roofline of 8.03 billion weights on A100-SXM4-80GB",)
    assert unknown is None
    assert why == ("prior: no executor has the model's config.json, so none is used",)


async def test_task_that_asks_for_no_prior_has_none() -> None:
    around = Surroundings(installation=Installation(OFFERS))
    no_connection: Any = None

    whole_plan = await make_whole_plan(no_connection, "default", make_file(), around)

    assert whole_plan.prior is None
    assert not any(note.startswith("prior") for note in whole_plan.plan.notes)


@pytest.mark.parametrize(
    ("benchmark", "sizes"),
    [({}, None), ({"arrivals": ["poisson(2)"]}, (100.0, 10.0))],
    ids=["unknown sizes", "by time"],
)
def test_unknown_requests_have_no_prior(
    benchmark: dict[str, Any], sizes: tuple[float, float] | None
) -> None:
    made, note = make_prior(make_file(benchmark=benchmark), LLAMA_8B, sizes)

    assert made is None
    assert "requests of unknown size, or that come by time" in note


def test_first_known_gpu_is_taken_for_the_prior() -> None:
    task = make_file(gpus={"models": ["L40S", "H100"]})

    made, _ = make_prior(task, LLAMA_8B, (100.0, 10.0))

    assert made is not None
    assert (made.gpu.model, made.input_tokens, made.output_tokens) == ("L40S", 100.0, 10.0)


def test_a_grid_takes_no_prior() -> None:
    with pytest.raises(RefusedError, match="expected a prior with strategy 'bayesian' or 'auto'"):
        prior_for(make_file(optimization={"prior": "roofline"}), Installation())


def test_default_gpu_of_the_prior_is_noted() -> None:
    _, note = make_prior(make_file(), LLAMA_8B, (100, 10))

    assert note == (
        "prior: roofline of 8.03 billion weights on H100, as the task names no GPU model that is "
        "known"
    )
