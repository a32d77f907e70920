"""The container engine that other tests stand on."""

from tests.docker_engine import PrivateEngine


def test_the_engine_answers(docker_engine: PrivateEngine) -> None:
    assert docker_engine.client.ping()
