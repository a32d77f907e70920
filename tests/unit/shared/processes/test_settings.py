"""Settings from the environment."""

from pathlib import Path

import pytest

from shared.ids import node_token
from shared.settings import CommonSettings, SettingsError, load_settings, nats_security


class SamplingSettings(CommonSettings, frozen=True, kw_only=True):
    """Stands for a service's own settings."""

    interval_seconds: float = 1.0
    batch: int = 10
    sources: tuple[str, ...] = ()
    simulate: bool = False


def load(**environ: str) -> SamplingSettings:
    return load_settings(SamplingSettings, "sampling", environ)


def test_settings_have_defaults() -> None:
    settings = load()

    assert (settings.interval_seconds, settings.batch) == (1.0, 10)
    assert settings.nats_url == "nats://127.0.0.1:4222"
    assert settings.node_id == node_token(settings.node_id)


def test_own_settings_carry_the_service_name() -> None:
    settings = load(
        GPUSTEWARD_NATS_URL="tls://bus:4222",
        GPUSTEWARD_NODE_ID="a100-3",
        GPUSTEWARD_SAMPLING_INTERVAL_SECONDS="0.25",
        GPUSTEWARD_SAMPLING_SIMULATE="true",
        GPUSTEWARD_SCHEDULER_QUANTUM="of another service",
        PATH="/usr/bin",
    )

    assert (settings.nats_url, settings.node_id) == ("tls://bus:4222", "a100-3")
    assert (settings.interval_seconds, settings.simulate) == (0.25, True)


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        pytest.param("GPUSTEWARD_SAMPLING_INTERVAL_SECONDS", "soon", "float", id="float"),
        pytest.param("GPUSTEWARD_SAMPLING_BATCH", "1.5", "int", id="int"),
        pytest.param("GPUSTEWARD_SAMPLING_SIMULATE", "perhaps", "bool", id="bool"),
    ],
)
def test_wrong_type_names_its_variable(variable: str, value: str, expected: str) -> None:
    with pytest.raises(SettingsError, match=f"Expected `{expected}`.*{variable}"):
        load(**{variable: value})


def test_unknown_variable_names_nearest_or_all() -> None:
    with pytest.raises(SettingsError) as refused:
        load(GPUSTEWARD_SAMPLING_INTERVALL_SECONDS="1", GPUSTEWARD_SAMPLING_COLOUR="red")

    colour, interval = str(refused.value).splitlines()
    assert interval == (
        "unknown setting GPUSTEWARD_SAMPLING_INTERVALL_SECONDS; "
        "did you mean GPUSTEWARD_SAMPLING_INTERVAL_SECONDS?"
    )
    assert "GPUSTEWARD_SAMPLING_INTERVAL_SECONDS" in colour.split("known:")[1]


def test_an_empty_variable_counts_as_absent() -> None:
    assert load(GPUSTEWARD_POSTGRES_DSN="", GPUSTEWARD_SAMPLING_BATCH="").postgres_dsn is None


def test_invalid_dsn_is_refused_without_password() -> None:
    with pytest.raises(SettingsError, match="GPUSTEWARD_POSTGRES_DSN") as refused:
        load(GPUSTEWARD_POSTGRES_DSN="user:store-secret@db/steward")

    assert "secret" not in str(refused.value)


def test_no_password_is_in_what_is_printed() -> None:
    settings = load(
        GPUSTEWARD_NATS_URL="nats://user:bus-secret@bus:4222",
        GPUSTEWARD_POSTGRES_DSN="postgresql://user:store-secret@db/steward",
        GPUSTEWARD_INSECURE_PLAINTEXT="true",
    )

    for text in (repr(settings), str(settings), f"{settings}", f"{settings!r}"):
        assert "secret" not in text
        assert "interval_seconds=1.0" in text


def test_dotted_node_name_fits_a_subject() -> None:
    settings = load(GPUSTEWARD_NODE_ID="ip-10-0-0-7.internal")

    assert settings.node_id == node_token("ip-10-0-0-7.internal")


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("NATS_URL", "nats://u:secret@bus:4222", "on the way to nats://bus:4222: expected tls://"),
        ("NATS_URL", "ws://bus:8080", "on the way to ws://bus:8080"),
        ("NATS_URL", "tls://a:4222,nats://b:4222", "tls://a:4222, nats://b:4222"),
        ("POSTGRES_DSN", "postgresql://u:secret@db/x", "on the way to db:5432: expected ?sslmode"),
        ("POSTGRES_DSN", "postgresql://u@db/x?sslmode=prefer", "on the way to db:5432"),
    ],
)
def test_plaintext_beyond_this_machine_is_refused(variable: str, value: str, says: str) -> None:
    name = f"GPUSTEWARD_{variable}"

    with pytest.raises(SettingsError) as refused:
        load(**{name: value})

    assert str(refused.value).startswith(f"{name}: ")
    assert says in str(refused.value)
    assert "GPUSTEWARD_INSECURE_PLAINTEXT=true lets everybody" in str(refused.value)
    assert "secret" not in str(refused.value)
    load(**{name: value, "GPUSTEWARD_INSECURE_PLAINTEXT": "true"})


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("NATS_URL", "nats://127.0.0.1:4222"),
        ("NATS_URL", "wss://bus:443"),
        ("POSTGRES_DSN", "postgresql://127.0.0.2/x"),
        ("POSTGRES_DSN", "postgresql:///x?host=/run/postgresql"),
        ("POSTGRES_DSN", "postgresql://a,b/x?sslmode=verify-full"),
    ],
)
def test_what_is_encrypted_or_stays_here_is_taken(variable: str, value: str) -> None:
    load(**{f"GPUSTEWARD_{variable}": value})


def test_authority_of_the_credentials_encrypts(tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    path.write_text('{"user": "u", "password": "p", "ca": "-----BEGIN CERTIFICATE-----"}')

    settings = load(GPUSTEWARD_NATS_URL="nats://bus:4222", GPUSTEWARD_NATS_CREDENTIALS=str(path))

    assert nats_security(settings).is_encrypted(settings.nats_url)
