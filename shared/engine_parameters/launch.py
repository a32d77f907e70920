"""How the engines that anybody can install are started: by hand, and in their own images."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from shared.engine_parameters.arguments import arguments_of


class EngineLaunch(Struct, frozen=True, kw_only=True):
    """`program` is what a person types. In the image `image_program` comes after `entrypoint`, or
    after the image's own where that is None.

    `model_flag` None puts the model first; `hub_flag` is the one for a model of a hub, as in
    `owner/name`, where it differs. `plain_switches` are those without a `--no-` form, although
    others have one.
    """

    program: tuple[str, ...]
    repository: str
    tag: str
    port: int
    entrypoint: tuple[str, ...] | None = None
    image_program: tuple[str, ...] = ()
    model_flag: str | None = "--model"
    hub_flag: str | None = None
    has_negative_switches: bool = True
    plain_switches: frozenset[str] = frozenset()
    readiness_path: str = "/health"

    def model_arguments(self, model: str) -> list[str]:
        is_of_hub = self.hub_flag is not None and self.knows_where(model)
        flag = self.hub_flag if is_of_hub and not model.startswith("/") else self.model_flag
        return [model] if flag is None else [flag, model]

    def knows_where(self, model: str) -> bool:
        """Whether the engine finds the model by this text, on another machine too."""
        return self.hub_flag is None or "/" in model

    def arguments(self, parameters: Mapping[str, Any]) -> list[list[str]]:
        """Each parameter's own, for parameters that an experiment ran with."""
        return [
            arguments_of(
                spelling,
                value,
                has_negative_switches=self.has_negative_switches,
                plain_switches=self.plain_switches,
            )
            for spelling, value in parameters.items()
            if value is not None
        ]


# Without these there is no /metrics; vLLM always has it.
_SGLANG: Final = ("python3", "-m", "sglang.launch_server", "--enable-metrics")
_LLAMA_SERVER: Final = ("--metrics",)

LAUNCHES: Final[Mapping[str, EngineLaunch]] = {
    "vllm": EngineLaunch(
        program=("vllm", "serve"),
        model_flag=None,
        # The entrypoint of its own has changed between versions, this has not.
        entrypoint=("vllm", "serve"),
        repository="vllm/vllm-openai",
        tag="v0.18.0",
        port=8000,
        # Every other switch comes from a field of its configuration, which makes the form `--no-`.
        plain_switches=frozenset(
            {
                "aggregate-engine-logging",
                "data-parallel-multi-port-external-lb",
                "disable-log-requests",  # until v0.10
                "disable-log-stats",
                "grpc",
                "headless",
            }
        ),
    ),
    "sglang": EngineLaunch(
        program=_SGLANG,
        model_flag="--model-path",
        image_program=_SGLANG,
        repository="lmsysorg/sglang",
        tag="v0.5.19-cu129",
        port=30000,
        has_negative_switches=False,
    ),
    "llamacpp": EngineLaunch(
        program=("llama-server", *_LLAMA_SERVER),
        image_program=_LLAMA_SERVER,
        hub_flag="--hf-repo",
        repository="ghcr.io/ggml-org/llama.cpp",
        tag="server-cuda-b9628",
        port=8080,
        # Off where they are not given; the others have the form `--no-`.
        plain_switches=frozenset(
            {
                *("backend-sampling", "check-tensors", "cpu-moe", "cpu-moe-draft", "embedding"),
                *("embeddings", "ignore-eos", "metrics", "mlock", "no-host", "offline", "rerank"),
                *("reranking", "spec-draft-cpu-moe", "special", "spm-infill", "swa-full"),
            }
        ),
    ),
}
