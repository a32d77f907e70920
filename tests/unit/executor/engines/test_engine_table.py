import sys
from dataclasses import replace
from typing import Any

import pytest

from schemas.errors import ErrorCode
from services.executor.engines.engine import EngineCommand
from services.executor.engines.engine_table import ENGINES, build_command, engine_named, missing
from shared.errors import RefusedError


def command(engine: str, parameters: dict[str, Any], model: str = "a/model") -> EngineCommand:
    return build_command(engine, model, parameters, port=8001)


def open_command(engine: str, parameters: dict[str, Any]) -> EngineCommand:
    """With all that the engine knows allowed by the operator."""
    engines = {name: replace(row, allowed=frozenset("*")) for name, row in ENGINES.items()}
    return build_command(engine, "a/model", parameters, port=8001, engines=engines)


def parameter_part(built: EngineCommand, served_flag: str = "--served-model-name") -> list[str]:
    """What stands between the model and the address."""
    argv = list(built.argv)
    return argv[argv.index(served_flag) + 2 : -4]


@pytest.mark.parametrize(
    ("parameters", "want"),
    [
        pytest.param({"tp-size": 2}, ["--tp-size", "2"], id="hyphens"),
        pytest.param({"tp_size": 2}, ["--tp-size", "2"], id="underscores"),
        pytest.param(
            {"mem-fraction-static": 0.7}, ["--mem-fraction-static", "0.7"], id="a fraction"
        ),
        pytest.param({"enable-x": True}, ["--enable-x"], id="a switch that is on"),
        pytest.param({"enable-x": None}, [], id="nothing"),
        pytest.param({"attention": "a b"}, ["--attention", "a b"], id="a value with a space"),
        pytest.param({"note": "$(id); `id`"}, ["--note", "$(id); `id`"], id="a value of the shell"),
        pytest.param({"note": "--host=::"}, ["--note=--host=::"], id="a value like a flag"),
        pytest.param({"shift": -1}, ["--shift=-1"], id="a negative number"),
        pytest.param(
            {"override": {"a": [1, {"b": "c d"}]}},
            ["--override", '{"a":[1,{"b":"c d"}]}'],
            id="an object becomes JSON in one element",
        ),
        pytest.param({"sizes": [1, 2]}, ["--sizes", "1", "2"], id="a list"),
        pytest.param({"sizes": []}, [], id="an empty list"),
        pytest.param({"zone": 1, "block": 2}, ["--zone", "1", "--block", "2"], id="order is kept"),
    ],
)
def test_a_parameter_becomes_arguments(parameters: dict[str, Any], want: list[str]) -> None:
    assert parameter_part(open_command("vllm", parameters)) == want


@pytest.mark.parametrize(
    ("engine", "parameters", "want"),
    [
        pytest.param("vllm", {"enable-x": False}, ["--no-enable-x"], id="vllm says no"),
        pytest.param("vllm", {"no-enable-x": False}, ["--enable-x"], id="vllm says no twice"),
        pytest.param("sglang", {"enable-x": False}, [], id="sglang leaves it out"),
        pytest.param("vllm", {"disable-log-stats": False}, [], id="vllm has no such form of it"),
        pytest.param("vllm", {"disable_log_stats": True}, ["--disable-log-stats"], id="but it has"),
    ],
)
def test_a_switch_that_is_off_follows_the_engine(
    engine: str, parameters: dict[str, Any], want: list[str]
) -> None:
    assert parameter_part(open_command(engine, parameters)) == want


def test_each_engine_gets_model_and_address_its_way() -> None:
    vllm = command("vllm", {}).argv
    sglang = command("SGLang", {}).argv
    llamacpp = command("llamacpp", {"threads": 1}).argv

    address = ("--host", "127.0.0.1", "--port", "8001")
    assert vllm == ("vllm", "serve", "a/model", "--served-model-name", "a/model", *address)
    assert sglang[1:4] == ("-m", "sglang.launch_server", "--enable-metrics")
    assert (sglang[0], *sglang[4:6]) == (sys.executable, "--model-path", "a/model")
    assert llamacpp[1:7] == (
        "-m",
        "shared.engines.llamacpp.server",
        "--model",
        "a/model",
        "--alias",
        "a/model",
    )
    assert llamacpp[7:] == ("--threads", "1", *address)


def test_lmdeploy_has_flags_of_its_own_for_address_and_name() -> None:
    argv = command("lmdeploy", {"tp": 2, "enable_prefix_caching": True}).argv

    assert argv == (
        *("lmdeploy", "serve", "api_server", "a/model", "--model-name", "a/model"),
        *("--tp", "2", "--enable-prefix-caching"),
        *("--server-name", "127.0.0.1", "--server-port", "8001"),
    )


def test_only_simulated_engine_is_marked_simulated() -> None:
    marked = {name for name in ENGINES if command(name, {}).simulated}

    assert marked == {"simulated"}


def test_misspelt_parameter_is_refused_with_suggestion() -> None:
    with pytest.raises(RefusedError, match="did you mean 'tp-size'"):
        command("simulated", {"tp_sise": 1})


@pytest.mark.parametrize("engine", ["llamacpp", "simulated"])
def test_unknown_parameter_is_refused_with_known_ones(
    engine: str,
) -> None:
    with pytest.raises(RefusedError) as refusal:
        command(engine, {"zebra": 1})

    assert refusal.value.code is ErrorCode.BAD_REQUEST
    assert refusal.value.path == "$.parameters.zebra"
    assert "'zebra'" in refusal.value.message
    for flag in ENGINES[engine].flags or ():
        assert flag.name in refusal.value.message


@pytest.mark.parametrize(
    ("engine", "parameters", "path"),
    [
        pytest.param("llamacpp", {"threads": "many"}, "$.parameters.threads", id="wrong type"),
        pytest.param("vllm", {"host": "0.0.0.0"}, "$.parameters.host", id="the address"),  # noqa: S104  # refused
        pytest.param("sglang", {"hos": "x"}, "$.parameters.hos", id="the address cut short"),
        pytest.param("vllm", {"MODEL": "x", "model": "y"}, "$.parameters.model", id="the model"),
        pytest.param("vllm", {"config": "/x"}, "$.parameters.config", id="a file of flags"),
        pytest.param("vllm", {"middleware": "os"}, "$.parameters.middleware", id="foreign code"),
        pytest.param("vllm", {"trust_remote_code": True}, "$.parameters.trust_remote_code", id="t"),
        pytest.param("vllm", {"-x": 1}, "$.parameters.-x", id="a name that is a flag"),
        pytest.param("vllm", {"a b": 1}, "$.parameters.a b", id="a name with a space"),
        pytest.param("vllm", {"a": "x\0"}, "$.parameters.a", id="what no argument can hold"),
        pytest.param("vllm", {"sizes": ["-b"]}, "$.parameters.sizes", id="a flag in a list"),
        pytest.param("vllm", {"tp-x": 1, "tp_x": 2}, "$.parameters.tp_x", id="two spellings"),
    ],
)
def test_owned_parameter_of_a_task_is_refused(
    engine: str, parameters: dict[str, Any], path: str
) -> None:
    with pytest.raises(RefusedError) as refusal:
        open_command(engine, parameters)

    assert refusal.value.path == path
    assert refusal.value.code is ErrorCode.BAD_REQUEST


@pytest.mark.parametrize("model", ["", "--help"])
def test_a_model_that_is_no_name_is_refused(model: str) -> None:
    with pytest.raises(RefusedError, match="expected a model's name or path"):
        command("vllm", {}, model=model)


def test_unknown_engine_is_refused_with_known_ones() -> None:
    with pytest.raises(RefusedError, match="llamacpp, lmdeploy, sglang, simulated, trtllm, vllm"):
        engine_named("tgi")


def test_a_missing_engine_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")

    assert "pip install vllm" in str(missing("vllm"))
    assert missing("simulated") is None


@pytest.mark.parametrize(
    ("engine", "parameter"),
    [("vllm", "scheduler_cls"), ("vllm", "download-dir"), ("sglang", "forward-hooks")],
)
def test_parameter_outside_allow_list_is_refused(engine: str, parameter: str) -> None:
    with pytest.raises(RefusedError, match=rf"under \[engines.{engine}\] of its engines file"):
        command(engine, {parameter: "x"})


def test_allowed_parameter_becomes_arguments() -> None:
    given = {"enforce-eager": "false", "hf_overrides": '{"rope_theta": 1}', "max-num-seqs": "8"}

    assert parameter_part(command("vllm", given)) == [
        *("--no-enforce-eager", "--hf-overrides", '{"rope_theta":1}', "--max-num-seqs", "8")
    ]
