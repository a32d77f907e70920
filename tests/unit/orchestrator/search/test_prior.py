"""A roofline orders first proposals, and is never more than that."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from schemas.executor.attempts import Runtime, RuntimeOffer
from schemas.executor.model_shape import ModelShape
from schemas.orchestrator.experiments import ExperimentState
from schemas.task.task_file import Objective
from services.orchestrator.domain.plan.executor_offers import Offer
from services.orchestrator.domain.plan.expansion import Point
from services.orchestrator.domain.plan.plan import make_search
from services.orchestrator.domain.search.history import trials_of
from services.orchestrator.domain.search.prior import (
    USUAL_GPU,
    Prior,
    make_prior,
    predict,
    predicted_score,
)
from services.orchestrator.domain.search.propose import FORESEEN, Proposal, Search, propose
from services.orchestrator.domain.search.stages import Waiting
from services.orchestrator.planning.prior import prior_for
from shared.errors import RefusedError
from tests.benchmarks.search import past_of
from tests.support.worlds.orchestrator_records import make_file

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
        "gpu": USUAL_GPU,
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


def test_one_token_after_the_other_is_as_fast_as_weights_are_read() -> None:
    alone = predict(prior(), point(), 1)

    # 15 GB of weights that count, and a cache of 0.14 GB, at 3.35 TB/s.
    assert alone.tpot == pytest.approx((15.0e9 + 1100 * 131_072) / 3.35e12, rel=0.001)
    assert alone.ttft == pytest.approx(2 * 7.5e9 * 1000 / 989e12, rel=0.001)
    assert alone.e2e == pytest.approx(alone.ttft + 200 * alone.tpot)


def test_requests_beyond_the_batch_wait_for_whole_turns() -> None:
    turn, waiting = predict(prior(), point(), 8), predict(prior(), point(max_num_seqs=8), 64)

    assert waiting.tpot == turn.tpot
    assert waiting.e2e == pytest.approx(8 * turn.e2e)
    assert waiting.ttft == pytest.approx(turn.ttft + 7 * turn.e2e / 2)
    assert waiting.tokens_per_second == pytest.approx(turn.tokens_per_second)
    assert turn.tokens_per_second == pytest.approx(8 * 1200 / turn.e2e)
    assert turn.output_per_second == pytest.approx(8 * 200 / turn.e2e)


def test_requests_one_at_a_time_wait_for_all_before_them() -> None:
    alone, one_by_one = predict(prior(), point(), 1), predict(prior(), point(max_num_seqs=1), 8)

    assert one_by_one.e2e == pytest.approx(8 * alone.e2e)


@pytest.mark.parametrize(
    ("name", "bytes_each"),
    [("float32", 4), ("fp8", 1), ("int8", 1), ("w8a8", 1), ("awq", 0.5), ("gptq_marlin", 0.5)],
)
def test_weights_are_read_in_the_bytes_of_their_format(name: str, bytes_each: float) -> None:
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


def test_of_several_loads_times_are_their_mean_and_throughput_is_the_most() -> None:
    loads = (1, 64)
    alone, many = (predict(prior(), point(), load) for load in loads)

    found = {
        each: predicted_score(prior(objective=each, loads=loads), point())
        for each in (Objective.MINIMIZE_LATENCY, Objective.MAXIMIZE_THROUGHPUT)
    }

    assert found[Objective.MINIMIZE_LATENCY] == pytest.approx((alone.e2e + many.e2e) / 2)
    assert found[Objective.MAXIMIZE_THROUGHPUT] == many.tokens_per_second > alone.tokens_per_second
    by_output = prior(objective=Objective.MAXIMIZE_TOKENS_PER_JOULE, loads=loads).order(point())
    assert by_output == -many.output_per_second


def test_replicas_share_the_requests_and_stages_their_speed() -> None:
    half, replicas = predict(prior(), point(), 5), predict(prior(), point(dp=2), 9)
    stages = predict(prior(), point(pp=2), 5)

    assert (replicas.tpot, replicas.e2e) == (half.tpot, half.e2e)
    assert replicas.tokens_per_second == pytest.approx(9 / 2 * 1200 / half.e2e)
    assert stages.e2e == half.e2e
    assert stages.tokens_per_second == pytest.approx(half.tokens_per_second / 2)


def test_gpus_that_share_a_layer_are_as_much_faster_but_for_what_they_tell_each_other() -> None:
    alone, both = predict(prior(), point(), 1), predict(prior(), point(tp=2), 1)

    assert both.tpot == pytest.approx(alone.tpot / 2 + 2 * 32 * 1e-5)
    assert both.ttft == pytest.approx(alone.ttft / 2 + 2 * 32 * 1e-5)


def test_a_batch_reads_more_experts_than_a_token_and_all_of_them_at_most() -> None:
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


def test_what_no_score_is_foreseen_of_goes_by_the_output_of_a_gpu() -> None:
    given = prior(objective=Objective.MAXIMIZE_TOKENS_PER_JOULE)
    one, more = point(), point(tp=8)

    assert predicted_score(given, one) is None
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
    one, other = (predicted_score(given, point(**each)) for each in (better, than))

    assert one is not None
    assert other is not None
    assert one > other if objective.is_maximized else one < other


def test_what_its_gpus_cannot_hold_is_not_foreseen() -> None:
    large = ModelShape(
        weights=70_000_000_000, active_weights=70_000_000_000, cached_values=163_840, layers=80
    )

    assert predicted_score(prior(shape=large), point(tp=1)) is None
    assert predicted_score(prior(shape=large), point(tp=4)) is not None


def test_every_other_of_the_first_proposals_is_the_best_that_is_foreseen() -> None:
    given = prior()
    proposals = run(search("bayesian", given), FORESEEN + 2)

    foreseen = [each for each in proposals if "roofline of H100" in each.reason]
    assert [each.ordinal for each in foreseen] == [1, 3, 5]
    assert foreseen[0].point.parameters["tensor-parallel-size"] == 8
    scores = [predicted_score(given, each.point) or 0.0 for each in foreseen]
    assert scores == sorted(scores)


def test_no_more_is_foreseen_than_would_be_drawn() -> None:
    proposals = run(search("bayesian", prior(), n_initial_random=3), FORESEEN)

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
def test_stages_begin_with_the_foreseen_where_it_is_better_than_the_middle(
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


def test_a_space_that_cannot_be_counted_is_drawn_from() -> None:
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


def test_stages_wait_until_foreseen_and_middle_are_both_measured() -> None:
    found = search("auto", prior())
    first = run(found, 2)
    past = [past_of(each.ordinal, each.point, 1.0) for each in first]
    past[1] = replace(past[1], state=ExperimentState.RUNNING, scored=None)

    trials = trials_of((Objective.MINIMIZE_LATENCY,), found.space, past)

    assert isinstance(propose(found, trials, lambda _: True), Waiting)


def offers(shapes: dict[str, ModelShape]) -> list[Offer]:
    runtime = RuntimeOffer(
        runtime=Runtime.PROCESS, engines=("vllm",), model_roots=("/models",), model_shapes=shapes
    )
    return [Offer(executor_id="n1", runtimes=(runtime,))]


def test_a_model_is_known_by_the_config_that_an_executor_has() -> None:
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
    assert prior_for(make_file(), offers({"llama": LLAMA_8B})) == (None, ())


@pytest.mark.parametrize(
    ("benchmark", "sizes"),
    [({}, None), ({"arrivals": ["poisson(2)"]}, (100.0, 10.0))],
    ids=["unknown sizes", "by time"],
)
def test_requests_of_which_too_little_is_known_have_no_prior(
    benchmark: dict[str, Any], sizes: tuple[float, float] | None
) -> None:
    made, note = make_prior(make_file(benchmark=benchmark), LLAMA_8B, sizes)

    assert made is None
    assert "requests of unknown size, or that come by time" in note


def test_of_several_gpus_that_are_known_the_first_is_taken() -> None:
    task = make_file(gpus={"models": ["L40S", "H100"]})

    made, _ = make_prior(task, LLAMA_8B, (100.0, 10.0))

    assert made is not None
    assert (made.gpu.model, made.input_tokens, made.output_tokens) == ("L40S", 100.0, 10.0)


def test_a_grid_takes_no_prior() -> None:
    with pytest.raises(RefusedError, match="expected a prior with strategy 'bayesian' or 'auto'"):
        prior_for(make_file(optimization={"prior": "roofline"}), [])


def test_a_task_that_names_no_gpu_is_told_which_one_is_taken() -> None:
    _, note = make_prior(make_file(), LLAMA_8B, (100, 10))

    assert note == (
        "prior: roofline of 8.03 billion weights on H100, as the task names no GPU model that is "
        "known"
    )
