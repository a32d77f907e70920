"""One attempt over several nodes, each rank in a container."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace

from schemas.executor.attempts import AttemptOutcome, FailureKind, Runtime, StartExperiment
from schemas.executor.ranks import RankState
from services.executor.app import create_service
from tests.support.docker.images import engine_image
from tests.support.docker.private_engine import PrivateEngine
from tests.support.worlds.executor import scheduling
from tests.support.worlds.executor_gang import LEADER, MEMBER, Gang, gang_settings, make_gang_start

pytestmark = [pytest.mark.long, pytest.mark.timeout(120)]


def contained(start: StartExperiment) -> StartExperiment:
    return replace(start, engine=replace(start.engine, runtime=Runtime.DOCKER))


def containers(engine: PrivateEngine, node_id: str) -> list[dict[str, str]]:
    """What the engine has of one node."""
    label = f"gpusteward.node={node_id}"
    found: list[dict[str, str]] = engine.client.api.containers(all=True, filters={"label": label})
    return found


async def test_gang_in_containers_ends_with_killed_rank(
    docker_engine: PrivateEngine, nats_url: str, tmp_path: Path
) -> None:
    name, _, tag = engine_image(docker_engine.client).rpartition(":")
    engines = tmp_path / "engines.toml"
    engines.write_text(f'[engines.simulated]\nimage = "{name}"\ntag = "{tag}"\n')
    all_settings = gang_settings(
        nats_url, tmp_path, docker_host=docker_engine.base_url, engines_file=str(engines)
    )
    good = contained(make_gang_start(epoch=1))
    killed = contained(make_gang_start(epoch=2, endless=True))
    async with AsyncExitStack() as stack:
        scheduler = await stack.enter_async_context(scheduling(all_settings[0]))
        for settings in all_settings:
            await stack.enter_async_context(create_service(settings).running())
        nodes = Gang(scheduler)
        await scheduler.ask(good)
        measured = await scheduler.finished(good, within_seconds=40)
        await scheduler.until_released(good)
        left = [*containers(docker_engine, LEADER), *containers(docker_engine, MEMBER)]
        await scheduler.ask(killed)
        await scheduler.until_measuring(killed)
        [rank] = containers(docker_engine, MEMBER)
        docker_engine.client.api.kill(rank["Id"])
        finished = await scheduler.finished(killed, within_seconds=40)
        member = await nodes.until(killed, MEMBER, RankState.ENDED)
        left += [*containers(docker_engine, LEADER), *containers(docker_engine, MEMBER)]

    assert measured.outcome is AttemptOutcome.SUCCEEDED, measured.failure
    assert left == []
    assert finished.outcome is AttemptOutcome.FAILED
    assert finished.failure is not None
    assert finished.failure.kind is FailureKind.RANK_FAILED
    assert finished.failure.message.startswith(f"rank 1 on {MEMBER}: simulated ended")
    assert "rank 1 has met its leader (simulated)" in finished.failure.log_tail
    assert member.failure is not None
