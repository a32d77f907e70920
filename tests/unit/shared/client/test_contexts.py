"""The contexts of `gpusteward login`: which platform is meant, and where its token lies."""

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.client import contexts as module
from shared.client.contexts import Contexts, has_keyring
from shared.client.discovery import Address, find_address, is_named
from shared.errors import RefusedError
from shared.paths import config_directory

keyring = pytest.importorskip("keyring", reason="needs gpusteward[keyring]")


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A user without a keyring, and without a platform on this machine."""
    monkeypatch.setattr(module, "has_keyring", lambda: False)
    monkeypatch.setattr("shared.paths.ROOT_STATE_DIR", tmp_path / "none")
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_DATA_HOME": str(tmp_path / "data")}


@pytest.fixture
def contexts(environ: dict[str, str]) -> Contexts:
    return Contexts(config_directory(environ))


@pytest.fixture
def system_keyring() -> Iterator[dict[tuple[str, str], str]]:
    """A keyring as a system has one, in memory."""
    import keyring.backend
    from keyring.errors import PasswordDeleteError

    secrets: dict[tuple[str, str], str] = {}

    class InMemory(keyring.backend.KeyringBackend):
        priority = 5

        def get_password(self, service: str, username: str) -> str | None:
            return secrets.get((service, username))

        def set_password(self, service: str, username: str, password: str) -> None:
            secrets[service, username] = password

        def delete_password(self, service: str, username: str) -> None:
            if secrets.pop((service, username), None) is None:
                raise PasswordDeleteError

    before = keyring.get_keyring()
    keyring.set_keyring(InMemory())  # type: ignore[no-untyped-call]
    yield secrets
    keyring.set_keyring(before)


def test_stored_context_is_the_current_one(contexts: Contexts) -> None:
    contexts.store(None, "https://one.example", "t1", person="ada", is_session=True)
    contexts.store(None, "https://two.example:8470", "t2")
    again = contexts.store(None, "https://one.example", "t3", person="ada")

    assert [each.name for each in contexts.list_contexts()] == ["one.example", "two.example"]
    assert contexts.current() == again
    assert contexts.token_of(again) == "t3"
    assert stat.S_IMODE(contexts.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(contexts.directory.stat().st_mode) == 0o700


def test_two_platforms_of_a_host_have_two_names(contexts: Contexts) -> None:
    names = [contexts.store(None, f"http://h:{port}", "t").name for port in (8470, 8471)]

    assert names == ["h", "h-8471"]


def test_address_is_that_of_the_current_context(
    contexts: Contexts, environ: dict[str, str]
) -> None:
    contexts.store("one", "https://one.example", "t1")
    contexts.store("two", "https://two.example", "t2")
    contexts.use("one")

    assert find_address(environ=environ) == Address("https://one.example", "t1")
    assert is_named(None, environ=environ)
    contexts.use("two")
    assert find_address(environ=environ) == Address("https://two.example", "t2")


@pytest.mark.parametrize(
    ("arguments", "variables", "address"),
    [
        ({"url": "https://two.example"}, {}, Address("https://two.example", "t2")),
        ({"url": "https://else.example"}, {}, Address("https://else.example")),
        ({"token": "mine"}, {}, Address("https://one.example", "mine")),
        ({}, {"GPUSTEWARD_URL": "https://else.example"}, Address("https://else.example")),
        ({}, {"GPUSTEWARD_TOKEN": "mine"}, Address("https://one.example", "mine")),
        (
            {},
            {"GPUSTEWARD_URL": "https://two.example/", "GPUSTEWARD_TOKEN": "mine"},
            Address("https://two.example", "mine"),
        ),
    ],
)
def test_what_is_said_goes_before_the_context(
    contexts: Contexts,
    environ: dict[str, str],
    arguments: dict[str, Any],
    variables: dict[str, str],
    address: Address,
) -> None:
    contexts.store("two", "https://two.example", "t2")
    contexts.store("one", "https://one.example", "t1")

    assert find_address(**arguments, environ={**environ, **variables}) == address


def test_named_data_directory_goes_before_the_context(
    contexts: Contexts, environ: dict[str, str], tmp_path: Path
) -> None:
    contexts.store("one", "https://one.example", "t1")

    assert not is_named(None, tmp_path, environ)
    assert not is_named(None, None, {**environ, "GPUSTEWARD_DATA_DIR": str(tmp_path)})


def test_forgotten_token_is_shown_to_nobody(contexts: Contexts, environ: dict[str, str]) -> None:
    contexts.store("one", "https://one.example", "t1")
    contexts.forget_token("one")

    assert find_address(environ=environ) == Address("https://one.example", None)
    assert "t1" not in contexts.path.read_text()
    contexts.remove("one")
    assert (contexts.current(), contexts.list_contexts()) == (None, ())


def test_unknown_context_is_refused_with_a_guess(contexts: Contexts) -> None:
    contexts.store("production", "https://one.example", "t1")

    with pytest.raises(RefusedError, match="did you mean 'production'"):
        contexts.use("prodution")


def test_file_that_cannot_be_read_says_what_to_do(contexts: Contexts) -> None:
    contexts.directory.mkdir(parents=True)
    contexts.path.write_text("{")

    with pytest.raises(RefusedError, match="remove that file"):
        contexts.current()


def test_keyring_holds_the_token_where_there_is_one(
    tmp_path: Path, system_keyring: dict[tuple[str, str], str]
) -> None:
    contexts = Contexts(tmp_path)
    assert has_keyring()

    context = contexts.store("one", "https://one.example", "secret")

    assert context.in_keyring
    assert "secret" not in contexts.path.read_text()
    assert contexts.token_of(context) == "secret"
    system_keyring.clear()
    with pytest.raises(RefusedError, match="the keyring does not give the token"):
        contexts.token_of(context)
    contexts.remove("one")


def test_forgetting_empties_the_keyring(
    tmp_path: Path, system_keyring: dict[tuple[str, str], str]
) -> None:
    contexts = Contexts(tmp_path)
    contexts.store("one", "https://one.example", "secret")

    contexts.forget_token("one")

    assert system_keyring == {}


def test_keyring_that_fails_is_none() -> None:
    from keyring.backends import fail

    before = keyring.get_keyring()
    keyring.set_keyring(fail.Keyring())  # type: ignore[no-untyped-call]
    assert not has_keyring()
    keyring.set_keyring(before)
