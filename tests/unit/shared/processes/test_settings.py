"""Settings from the environment."""

import pytest

from shared.ids import node_token
from shared.settings import CommonSettings, SettingsError, load_settings


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
        GPUSTEWARD_NATS_URL="nats://bus:4222",
        GPUSTEWARD_NODE_ID="a100-3",
        GPUSTEWARD_SAMPLING_INTERVAL_SECONDS="0.25",
        GPUSTEWARD_SAMPLING_SIMULATE="true",
        GPUSTEWARD_SCHEDULER_QUANTUM="of another service",
        PATH="/usr/bin",
    )

    assert (settings.nats_url, settings.node_id) == ("nats://bus:4222", "a100-3")
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
    )

    for text in (repr(settings), str(settings), f"{settings}", f"{settings!r}"):
        assert "secret" not in text
        assert "interval_seconds=1.0" in text


def test_dotted_node_name_fits_a_subject() -> None:
    settings = load(GPUSTEWARD_NODE_ID="ip-10-0-0-7.internal")

    assert settings.node_id == node_token("ip-10-0-0-7.internal")
