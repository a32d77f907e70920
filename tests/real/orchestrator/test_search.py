"""Searches over a real nats-server and Postgres; what runs them follows a script."""

import statistics
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from schemas.errors import Refused
from schemas.executor.attempts import Runtime, RuntimeOffer
from schemas.executor.model_shape import ModelShape
from schemas.orchestrator.experiments import ExperimentState, SubmitTask, TaskState
from schemas.orchestrator.views import TaskPlan, ValidateTask
from schemas.task.benchmark import BenchmarkTool
from schemas.task.objectives import Objective
from schemas.task.task_file import GpuPreferences, StopReason, TaskFile
from services.orchestrator.app import create_service
from services.orchestrator.domain.search import tpe
from services.orchestrator.settings import OrchestratorSettings
from shared.ids import new_id
from shared.service import Service
from shared.testing import eventually
from tests.support.worlds.orchestrator import World, task_file
from tests.support.worlds.orchestrator_records import ENGINE_RULES

SLOTS = {"slots": {"type": "integer", "low": 1, "high": 32}}


def search_file(name: str = "search", **optimization: Any) -> TaskFile:
    settings = {"strategy": "bayesian", "seed": 5, "max_iterations": 8, "n_initial_random": 3}
    return task_file(name, parameters=SLOTS, optimization={**settings, **optimization})


@pytest.fixture
async def service(nats_url: str, postgres_dsn: str, world: World) -> AsyncIterator[Service]:
    settings = OrchestratorSettings(nats_url=nats_url, postgres_dsn=postgres_dsn)
    service = create_service(settings)
    async with service.running():
        yield service


async def until_started(world: World, count: int) -> None:
    await eventually(lambda: len(world.starts) == count, what=f"{count} starts")


async def slots_of(world: World, task_id: UUID) -> list[int]:
    return [each.parameters["slots"] for each in await world.experiments(task_id)]


async def test_search_proposes_one_after_the_other(world: World, service: Service) -> None:
    task_id = await world.submit(search_file())

    view = await world.until(task_id, TaskState.COMPLETED)

    experiments = await world.experiments(task_id)
    assert [each.ordinal for each in experiments] == list(range(1, 9))
    assert experiments[0].proposal == "drawn at random, 1 of 3"
    assert experiments[7].proposal == "the most promising by 7 measured"
    assert len({each.parameters["slots"] for each in experiments}) == 8
    assert (view.stop_reason, view.experiments_at_most) == (StopReason.MAX_ITERATIONS, 8)
    best = max(experiments, key=lambda each: each.parameters["slots"])
    assert view.best_experiment_id == best.experiment_id
    # Each start was sent once, in the order of the proposals.
    assert [start.experiment_id for start in world.starts] == [e.experiment_id for e in experiments]


async def test_parallel_proposals_follow_grants(world: World, service: Service) -> None:
    world.auto_grant = world.auto_run = False
    task_id = await world.submit(search_file(max_parallel=3))

    for granted in range(3):
        await eventually(lambda: len(world.requests) > len(world.starts), what="another request")
        states = [each.state for each in await world.experiments(task_id)]
        assert states.count(ExperimentState.WAITING) == 1
        await world.grant(list(world.requests)[-1])
        await until_started(world, granted + 1)

    assert len(world.requests) == 3
    await world.tell_started(world.starts[0])
    await world.finish(world.starts[0])
    await eventually(lambda: len(world.requests) == 4, what="a request in its place")
    assert len(set(await slots_of(world, task_id))) == 4


async def test_spent_gpu_hours_start_nothing_further(world: World, service: Service) -> None:
    # Every attempt of the script has its GPU for a second or more.
    for strategy in ("bayesian", "grid_search"):
        slots = [1, 2, 3] if strategy == "grid_search" else SLOTS["slots"]
        task_id = await world.submit(
            task_file(
                strategy,
                parameters={"slots": slots},
                optimization={"strategy": strategy, "max_gpu_hours": 0.5 / 3600},
            )
        )

        view = await world.until(task_id, TaskState.COMPLETED)

        assert view.stop_reason is StopReason.MAX_GPU_HOURS
        states = [each.state for each in await world.experiments(task_id)]
        assert states[0] is ExperimentState.SUCCEEDED
        cut = 2 if strategy == "grid_search" else 0
        assert states[1:] == [ExperimentState.CANCELLED] * cut


async def test_spent_money_starts_nothing_further(world: World, service: Service) -> None:
    bounded = {"strategy": "grid_search", "trust": True, "max_cost": 0.001}
    file = task_file("bounded", parameters={"slots": [1, 2, 3]}, optimization=bounded)
    without = await world.bus.request(SubmitTask(command_id=new_id(), task_id=new_id(), task=file))
    assert isinstance(without, Refused)
    assert "GPUSTEWARD_RESULTS_GPU_HOUR_PRICES has none" in without.message

    # A second of a GPU costs 0.002.
    world.prices = {"h100": 7.2}
    task_id = await world.submit(file)
    view = await world.until(task_id, TaskState.COMPLETED)

    assert view.stop_reason is StopReason.MAX_COST
    first, *others = await world.experiments(task_id)
    assert first.request.gpu_models == ("h100",)
    assert (await world.task(task_id)).task == file, "a clone asks anew"
    assert {each.reason for each in others} == {"the task has used up its 0.001 EUR"}
    assert view.trust is not None
    assert view.trust.incomplete_because == "the task has used up its max_cost"
    assert view.notes[-1] == (
        "max_cost: 0.001 EUR are 0.000139 GPU-hours of h100; GPUs without a price are not taken"
    )


async def test_prior_orders_proposals_and_is_shown(world: World, service: Service) -> None:
    shape = ModelShape(
        weights=8_030_000_000, active_weights=7_500_000_000, cached_values=65_536, layers=32
    )
    offer = RuntimeOffer(
        runtime=Runtime.PROCESS,
        engines=("simulated",),
        engine_rules=ENGINE_RULES,
        model_shapes={"simulated-model": shape},
    )
    await world.report(runtimes=(offer,))
    file = search_file(prior="roofline", max_iterations=3)

    async def is_known() -> bool:
        plan = await world.bus.query(ValidateTask(task=file), TaskPlan)
        return "prior: roofline of 8.03 billion weights on H100" in plan.notes[-1]

    await eventually(is_known, what="a model whose size is known")
    task_id = await world.submit(file)
    await world.until(task_id, TaskState.COMPLETED)

    experiments = await world.experiments(task_id)
    reason = "the best that is left by the roofline of H100"
    assert [each.proposal == reason for each in experiments] == [True, False, True]
    assert all(each.predicted_score for each in experiments)


@pytest.fixture
def recorded_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand for AIConfigurator: every answer is the same, recorded one."""
    script = (
        f"#!{sys.executable}\nimport json, sys\n"
        "answer = {'ttft_ms': 66.0, 'tpot_ms': 7.27, 'backend_version': '0.24.0'}\n"
        "print(json.dumps([answer for _ in json.loads(sys.argv[-1])]))\n"
    )
    for name in ("aiconfigurator", "python"):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("GPUSTEWARD_AICONFIGURATOR", str(tmp_path / "aiconfigurator"))


@pytest.mark.usefixtures("recorded_tool")
async def test_forecasts_are_kept_and_corrected_by_measurements(
    world: World, service: Service
) -> None:
    """The engine is simulated, and only called vllm."""
    shape = ModelShape(
        weights=8_030_000_000, active_weights=7_500_000_000, cached_values=65_536, layers=32
    )
    offer = RuntimeOffer(
        runtime=Runtime.PROCESS,
        engines=("vllm",),
        engine_rules=ENGINE_RULES,
        model_shapes={"simulated-model": shape},
    )
    await world.report(runtimes=(offer,))
    file = replace(
        search_file(prior="aiconfigurator", max_iterations=3),
        base_runtime="vllm",
        parameters={"max-num-batched-tokens": {"type": "integer", "low": 2048, "high": 8192}},
        gpus=GpuPreferences(models=("H100",)),
    )
    other = replace(file, gpus=GpuPreferences(models=("MI300X",)))

    async def is_known() -> bool:
        plan = await world.bus.query(ValidateTask(task=file), TaskPlan)
        return "AIConfigurator is asked when" in plan.notes[-1]

    await eventually(is_known, what="a model whose size is known")
    tasks = []
    for each in (file, file, other):
        task_id = await world.submit(each)
        await world.until(task_id, TaskState.COMPLETED)
        tasks.append((await world.task(task_id), await world.experiments(task_id)))

    first, second, without = tasks
    assert "AIConfigurator for h100_sxm (vllm 0.24.0) predicts" in first[0].notes[-1]
    assert "not corrected, as fewer than 3 experiments" in first[0].notes[-1]
    assert all(each.predicted_score for each in first[1])
    assert "learned from 3 experiments" in second[0].notes[-1]
    ratios = [
        each.objective_score / each.predicted_score
        for each in first[1]
        if each.objective_score and each.predicted_score
    ]
    [plain], [corrected] = ({each.predicted_score for each in task[1]} for task in (first, second))
    assert plain is not None
    assert corrected == pytest.approx(plain * min(10.0, statistics.median(ratios)))
    assert "AIConfigurator knows no MI300X, so the roofline is the prior" in without[0].notes[-1]


async def test_optuna_is_imported_outside_of_transactions(
    nats_url: str, postgres_dsn: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[str] = []
    monkeypatch.setattr(tpe, "load", lambda: loads.append(threading.current_thread().name))
    settings = OrchestratorSettings(nats_url=nats_url, postgres_dsn=postgres_dsn)
    world.auto_grant = False

    async with create_service(settings).running():
        await world.submit(search_file("drawn", strategy="random"))
        assert loads == []
        await world.submit(search_file())
        await eventually(lambda: loads != [], what="the import that a new search begins")

    loads.clear()
    async with create_service(settings).running():
        assert loads  # before any event that a stored search goes on by


async def test_first_of_several_objectives_names_the_best(world: World, service: Service) -> None:
    objectives = ["maximize_throughput", "minimize_ttft"]
    file = search_file(objectives=objectives, trust=True, max_iterations=4)
    task_id = await world.submit(file)

    view = await world.until(task_id, TaskState.COMPLETED)

    experiments = await world.experiments(task_id)
    best = max(experiments, key=lambda each: each.objective_score or 0.0)
    assert view.objective is Objective.MAXIMIZE_THROUGHPUT
    assert view.trust is not None
    assert view.trust.winner in {best.ordinal, best.run.repeats}
    assert "none beats in it and minimize_ttft" in view.notes[0]


async def test_search_begins_with_past_measurements(world: World, service: Service) -> None:
    warm = {"warm_start": True, "max_iterations": 5}
    alone = await world.submit(search_file("alone", **warm))
    await world.until(alone, TaskState.COMPLETED)
    other = task_file("other", parameters={"slots": [32]}, benchmark={"num_concurrency": [4]})
    await world.until(await world.submit(other), TaskState.COMPLETED)

    begun = await world.submit(search_file("begun", **warm))
    view = await world.until(begun, TaskState.COMPLETED)

    first = await world.task(alone)
    assert first.notes[-1] == "warm_start: no past experiment measured the same"
    assert view.notes[-1] == (
        "warm_start: 5 past experiments on H100 (simulated), which are not counted as measured"
    )
    past, own = await slots_of(world, alone), await slots_of(world, begun)
    assert own[:2] == sorted(past, reverse=True)[:2]
    assert len(set(own)) == view.experiments_total == 5
    proposals = [each.proposal for each in await world.experiments(begun)]
    assert proposals[:2] == ["the best of 5 past experiments, measured again"] * 2
    assert proposals[2] == "the most promising by 2 measured and 5 past experiments"
    best = max(await world.experiments(begun), key=lambda each: each.parameters["slots"])
    assert view.best_experiment_id == best.experiment_id


async def test_measurements_of_another_tool_are_no_start(world: World, service: Service) -> None:
    """`auto` may become another tool than it was for the task before."""
    searched = search_file(warm_start=True, max_iterations=2)
    task = replace(searched, benchmark=replace(searched.benchmark, tool=BenchmarkTool.AUTO))
    await world.until(await world.submit(task), TaskState.COMPLETED)
    same = await world.bus.query(ValidateTask(task=task), TaskPlan)

    await world.report(tools=("genai-bench", "builtin"))

    async def plan() -> TaskPlan:
        return await world.bus.query(ValidateTask(task=task), TaskPlan)

    async def is_another_tool() -> bool:
        return (await plan()).benchmark_tool is BenchmarkTool.GENAI_BENCH

    await eventually(is_another_tool, what="the other tool")
    assert same.notes[-1].startswith("warm_start: 2 past experiments")
    assert (await plan()).notes[-1] == "warm_start: no past experiment measured the same"


@pytest.mark.parametrize(
    "given", [{"strategy": "grid_search"}, {"objectives": ["minimize_ttft", "minimize_tpot"]}]
)
async def test_impossible_warm_start_is_refused(
    world: World, service: Service, given: dict[str, Any]
) -> None:
    task = task_file("refused", optimization={"strategy": "bayesian", "warm_start": True, **given})

    reply = await world.bus.request(SubmitTask(command_id=new_id(), task_id=new_id(), task=task))

    assert isinstance(reply, Refused)
    assert reply.path == "$.optimization.warm_start"


async def test_validated_search_says_what_it_may_take(world: World, service: Service) -> None:
    plan = await world.bus.query(ValidateTask(task=search_file()), TaskPlan)

    assert (plan.experiments, plan.total, plan.experiments_at_most) == ((), 32, 8)
    assert plan.notes[0].startswith("strategy 'bayesian': at most 8 of 32 configurations")
