"""What of an engine's many flags a task may give, and in which form."""

import re
from typing import Any

import pytest

from schemas.executor.engine_rules import EngineParameter, EngineRules, ParameterKind
from shared.engines.check import check_parameters, check_value
from shared.engines.table import ALLOW_LISTS
from shared.errors import RefusedError


def refusal(engine: str, parameters: dict[str, Any], *allowed: str) -> RefusedError | None:
    listed = next(each for each in ALLOW_LISTS.values() if each.engine == engine)
    try:
        check_parameters(engine, EngineRules(allow_list=listed.name, allowed=allowed), parameters)
    except RefusedError as error:
        return error
    return None


LOADS_CODE = {
    "vllm": """
        scheduler-cls worker-cls worker-extension-cls middleware logits-processors
        io-processor-plugin kv-transfer-config ec-transfer-config kv-events-config tool-server
        tool-parser-plugin reasoning-parser-plugin trust-remote-code additional-config
        profiler-config code-revision weight-transfer-config
    """,
    "sglang": """
        enable-custom-logit-processor forward-hooks hicache-storage-backend
        hicache-storage-backend-extra-config disaggregation-transfer-backend custom-weight-loader
        trust-remote-code tool-server sidecar sidecar-args kv-events-config use-ray warmups
    """,
    "llamacpp": "tools agent mcp-servers-config mcp-servers-json tools-runtime rpc ui-mcp-proxy",
}
OPENS = {
    "vllm": """
        download-dir allowed-local-media-path allowed-media-domains chat-template log-config-file
        hf-config-path ssl-keyfile ssl-certfile otlp-traces-endpoint lora-modules default-mm-loras
        root-path enable-prompt-embeds enable-sleep-mode enable-tokenizer-info-endpoint grpc
        data-parallel-address data-parallel-rpc-port
    """,
    "sglang": """
        chat-template completion-template file-storage-path crash-dump-folder download-dir
        debug-tensor-dump-output-folder debug-tensor-dump-input-file quantization-param-path
        lora-paths enable-lora init-expert-location speculative-token-map kt-weight-path
        delete-ckpt-after-loading export-metrics-to-file-dir ssl-keyfile admin-api-key nccl-port
        lmcache-config-file modelopt-export-path weight-cache-socket decrypted-config-file
    """,
    "llamacpp": """
        lora lora-scaled control-vector grammar-file json-schema-file log-file mmproj mmproj-url
        chat-template-file model-draft media-path models-dir models-preset slots-save-path props
        log-prompts-dir lookup-cache-static lookup-cache-dynamic hf-token docker-repo
        video-ffmpeg-dir
    """,
}


@pytest.mark.parametrize("flags", [LOADS_CODE, OPENS], ids=["loads code", "opens a path or port"])
@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp"])
def test_dangerous_flag_needs_the_operator(engine: str, flags: dict[str, str]) -> None:
    for flag in flags[engine].split():
        for spelling in (flag, flag.replace("-", "_"), f"no-{flag}"):
            refused = refusal(engine, {spelling: "x"})

            assert refused is not None, flag
            assert refused.path == f"$.parameters.{spelling}"
        assert refusal(engine, {flag: "x"}, flag) is None
        assert refusal(engine, {flag: "x"}, "*") is None


def test_refusal_tells_how_to_allow_the_flag() -> None:
    refused = refusal("vllm", {"scheduler_cls": "os.system"})

    assert refused is not None
    assert refused.message == (
        "'scheduler_cls' is not on the list of what a task may give vllm 0.18.0; the operator of a "
        'node allows it with allow = ["scheduler-cls"] under [engines.vllm] of its engines file'
    )


@pytest.mark.parametrize(
    ("engine", "parameters"),
    [
        ("vllm", {"max-num-seqs": 256, "gpu_memory_utilization": 0.9, "enforce-eager": True}),
        ("vllm", {"max-model-len": "32k", "no-enable-prefix-caching": True, "dtype": "bfloat16"}),
        ("vllm", {"tensor-parallel-size": "2", "cudagraph-capture-sizes": [1, 2, 4]}),
        ("vllm", {"speculative-config": {"method": "eagle3", "model": "org/draft-1.0"}}),
        ("vllm", {"speculative-config": '{"method": "ngram", "num_speculative_tokens": 4}'}),
        ("vllm", {"compilation-config": {"cudagraph_mode": "FULL", "custom_ops": ["+rms_norm"]}}),
        ("vllm", {"hf-overrides": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}}),
        ("vllm", {"num-scheduler-steps": 8, "distributed-executor-backend": "mp"}),
        ("sglang", {"mem-fraction-static": 0.85, "tp_size": 2, "schedule-policy": "lpm"}),
        ("sglang", {"chunked-prefill-size": -1, "cuda-graph-bs": [1, 2], "max-total-tokens": 4096}),
        ("sglang", {"speculative-draft-model-path": "org/draft", "speculative-num-steps": 3}),
        ("sglang", {"attention-backend": None, "torchao-config": "int4wo-128"}),
        ("llamacpp", {"tensor-split": "3,1.5", "no-mmap": True, "n-gpu-layers": "all"}),
        ("llamacpp", {"samplers": "top_k;top_p;temperature", "seed": -1}),
    ],
)
def test_what_tunes_an_engine_is_given(engine: str, parameters: dict[str, Any]) -> None:
    assert refusal(engine, parameters) is None


@pytest.mark.parametrize(
    ("engine", "parameters", "place"),
    [
        ("vllm", {"quantization": "/etc/passwd"}, "quantization"),
        ("vllm", {"attention-backend": "os.system"}, "attention-backend"),
        ("vllm", {"tokenizer": "/etc"}, "tokenizer"),
        ("vllm", {"tokenizer": "../up"}, "tokenizer"),
        ("vllm", {"tokenizer": "a/../b"}, "tokenizer"),
        ("vllm", {"cudagraph-capture-sizes": [1, "/x"]}, "cudagraph-capture-sizes"),
        ("vllm", {"dtype": {"a": 1}}, "dtype"),
        ("vllm", {"max-num-seqs": "many"}, "max-num-seqs"),
        ("vllm", {"load-format": "tensorizer"}, "load-format"),
        ("vllm", {"distributed-executor-backend": "my.Class"}, "distributed-executor-backend"),
        ("vllm", {"tokenizer-mode": "custom"}, "tokenizer-mode"),
        (
            "vllm",
            {"speculative-config": {"model": "a/b", "trust_remote_code": True}},
            "speculative-config.trust_remote_code",
        ),
        ("vllm", {"speculative-config": {"model": "/etc"}}, "speculative-config.model"),
        ("vllm", {"speculative-config": '{"model": "/etc"}'}, "speculative-config.model"),
        ("vllm", {"speculative-config": {"method": "custom_class"}}, "speculative-config.method"),
        ("vllm", {"speculative-config": "not an object"}, "speculative-config"),
        ("vllm", {"speculative-config.model": "/etc"}, "speculative-config.model"),
        ("vllm", {"hf-overrides": {"auto_map": {"AutoConfig": "x"}}}, "hf-overrides.auto_map"),
        (
            "vllm",
            {"hf-overrides": {"rope_scaling": {"factor": "/x"}}},
            "hf-overrides.rope_scaling.factor",
        ),
        (
            "vllm",
            {"compilation-config": {"inductor_passes": {"a": "os.system"}}},
            "compilation-config.inductor_passes",
        ),
        ("vllm", {"compilation-config": {"backend": "a.b"}}, "compilation-config.backend"),
        ("vllm", {"compilation-config": {"cache_dir": "/x"}}, "compilation-config.cache_dir"),
        (
            "sglang",
            {"json-model-override-args": '{"auto_map": 1}'},
            "json-model-override-args.auto_map",
        ),
        ("sglang", {"load-format": "remote"}, "load-format"),
        ("sglang", {"speculative-draft-model-path": "/x"}, "speculative-draft-model-path"),
        ("sglang", {"trust-remote": True}, "trust-remote"),
        ("llamacpp", {"device": "a b"}, "device"),
    ],
)
def test_value_naming_code_or_path_is_refused(
    engine: str, parameters: dict[str, Any], place: str
) -> None:
    refused = refusal(engine, parameters)

    assert refused is not None
    assert refused.path == f"$.parameters.{place}"


def test_no_list_has_a_dangerous_flag_name() -> None:
    suspect = re.compile(r"path|-dir|file|folder|url|endpoint|-cls|plugin|hook|trust")
    known = {
        "enable-profile-cuda-graph",
        "lora-paths",  # ids of a hub
        "mamba-max-states-per-path",
        "speculative-draft-model-path",  # an id of a hub
        "tokenizer-path",  # the same
    }

    for listed in ALLOW_LISTS.values():
        assert {flag for flag in listed.forms if suspect.search(flag)} <= known


def test_list_of_other_release_is_left_to_executor() -> None:
    check_parameters("vllm", EngineRules(allow_list="vllm-9.9"), {"anything": 1})
    check_parameters("vllm", EngineRules(), {"anything": 1})


def test_unlisted_engine_gets_allowed_flags_only() -> None:
    rules = EngineRules(allow_list="", allowed=("x",))

    check_parameters("mine", rules, {"x": {"any": ["thing"]}})
    with pytest.raises(RefusedError, match=r'allow = \["y"\] under \[engines.mine\]'):
        check_parameters("mine", rules, {"y": 1})


KNOWN = EngineRules(
    is_closed=True,
    parameters=(
        EngineParameter(name="slots", kind=ParameterKind.INTEGER, minimum=1, maximum=8),
        EngineParameter(name="share", kind=ParameterKind.NUMBER, minimum=0),
        EngineParameter(name="jinja", kind=ParameterKind.SWITCH),
        EngineParameter(name="split", kind=ParameterKind.CHOICE, choices=("layer", "row")),
    ),
)


@pytest.mark.parametrize(
    ("flag", "value", "want"),
    [
        ("slots", 1, 1),
        ("slots", "8", 8),
        ("share", "0.5", 0.5),
        ("share", 0, 0.0),
        ("jinja", "true", True),
        ("jinja", "False", False),
        ("jinja", True, True),
        ("split", "ROW", "row"),
        ("slots", None, None),
    ],
)
def test_a_known_parameter_may_come_as_text(flag: str, value: object, want: object) -> None:
    found = check_value("mine", KNOWN, flag, flag, value)

    assert found == want
    assert type(found) is type(want)


@pytest.mark.parametrize(
    ("flag", "value", "expected"),
    [
        ("slots", 0, "an integer >= 1 and <= 8, got 0"),
        ("slots", 9, "an integer >= 1 and <= 8, got 9"),
        ("slots", 1.5, "an integer >= 1 and <= 8, got 1.5"),
        ("slots", True, "an integer >= 1 and <= 8, got True"),
        ("share", -0.1, ">= 0, got -0.1"),
        ("share", "nan", ">= 0, got 'nan'"),
        ("share", [1], ">= 0, got [1]"),
        ("jinja", 1, "got 1"),
        ("jinja", "yes", "got 'yes'"),
        ("split", "none", "one of layer, row, got 'none'"),
        ("other", 1, "mine has no parameter 'other'; known: slots, share, jinja, split"),
    ],
)
def test_a_known_parameter_is_refused_by_its_form(flag: str, value: object, expected: str) -> None:
    with pytest.raises(RefusedError) as refused:
        check_value("mine", KNOWN, flag, flag, value)

    assert expected in refused.value.message


@pytest.mark.parametrize(
    ("engine", "flag"),
    [("vllm", "gpu-memory-utilization"), ("sglang", "mem-fraction-static")],
)
def test_a_share_of_the_memory_is_no_percentage(engine: str, flag: str) -> None:
    too_much = refusal(engine, {flag: 95})

    assert refusal(engine, {flag: 0.9}) is None
    assert refusal(engine, {flag: "0.9"}) is None
    assert too_much is not None
    assert "expected a number >= 0 and <= 1, got 95" in str(too_much)


def test_a_misspelt_flag_names_the_one_like_it() -> None:
    assert "did you mean 'tensor-parallel-size'" in str(refusal("vllm", {"tensor-paralel-size": 2}))


@pytest.mark.parametrize(("engine", "flag"), [("vllm", "lora-modules"), ("sglang", "lora-paths")])
def test_adapters_of_a_hub_are_several_arguments(engine: str, flag: str) -> None:
    listed = next(each for each in ALLOW_LISTS.values() if each.engine == engine)
    rules = EngineRules(allow_list=listed.name)

    value = check_value(engine, rules, flag, flag, "sql=org/sql-lora chat=org/chat")

    assert value == ["sql=org/sql-lora", "chat=org/chat"]
    for path in ("sql=/etc", "sql=../x", "sql=./x", "sql", "=a/b", "a=b/c/d", ""):
        assert refusal(engine, {flag: path}) is not None, path
