"""Which number formats a GPU computes in, by its compute capability."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from schemas.errors import ErrorCode
from schemas.gpus.checks import Finding, PrecisionRules, Verdict
from shared.accelerator_rules.compute_capability import Capability, capability_text
from shared.errors import RefusedError

DOCUMENT: Final = "accelerator guide, GPU Compute Capability Reference"
PROGRAMMING_GUIDE: Final = "NVIDIA, CUDA C++ Programming Guide, Compute Capabilities"
VLLM_FP8: Final = "https://docs.vllm.ai/en/v0.18.0/features/quantization/llm_compressor/fp8/"
VLLM_HARDWARE: Final = (
    "https://docs.vllm.ai/en/v0.9.2/features/quantization/supported_hardware.html"
)

ANY: Final[Capability] = (0, 0)
# Below it no engine runs at all, so nothing has to be asked for. vLLM: Volta or newer.
EVERY_GPU: Final[Capability] = (7, 0)
_HALF: Final = "set dtype to half (--dtype half)"


class Precision(Struct, frozen=True, kw_only=True):
    """A number format. `hardware` is the first capability with units for it, `documented` what the
    accelerator guide says, `runs_from` where engines run it without such units, `how`. `names` are
    those of engines' parameters and of models' config.json.
    """

    name: str
    names: tuple[str, ...]
    hardware: Capability
    documented: Capability
    runs_from: Capability | None = None
    how: str = ""
    instead: str = ""
    source: str = PROGRAMMING_GUIDE


PRECISIONS: Final = (
    Precision(
        name="float32",
        names=("float32", "float", "fp32"),
        hardware=ANY,
        documented=ANY,
    ),
    Precision(
        name="float16",
        names=("float16", "half", "fp16"),
        hardware=(7, 0),
        documented=(7, 0),
        runs_from=(5, 3),
        how="without tensor cores, slowly",
        instead="take a GPU of Volta or newer",
    ),
    Precision(
        name="bfloat16",
        names=("bfloat16", "bf16"),
        hardware=(8, 0),
        documented=(8, 0),
        instead=_HALF,
    ),
    Precision(
        name="tf32",
        names=("tf32",),
        hardware=(8, 0),
        documented=(8, 0),
        instead="compute in float32, or in half",
    ),
    Precision(
        name="int8",
        names=("int8", "w8a8", "w8a8_int8"),
        hardware=(7, 2),
        documented=(7, 5),
        runs_from=(6, 1),
        how="without tensor cores (DP4A)",
        instead=_HALF,
    ),
    # The guide counts FP8 among Ampere's (8.0 to 8.9): of these only Ada (8.9) has units for it.
    Precision(
        name="fp8",
        names=(
            *("fp8", "float8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fbgemm_fp8", "ptpc_fp8"),
            *("w8a8_fp8", "float8_e4m3fn", "float8_e5m2", "modelopt"),
        ),
        hardware=(8, 9),
        documented=(8, 0),
        runs_from=(8, 0),
        how="kept as FP8 and computed in 16 bits (weights by Marlin kernels)",
        instead=f"take the model without FP8 and {_HALF}, or quantized by AWQ or GPTQ",
        source=f"{PROGRAMMING_GUIDE}; {VLLM_FP8}",
    ),
    # The guide counts FP4 among Hopper's: its units came with Blackwell.
    Precision(
        name="fp4",
        names=("fp4", "nvfp4", "mxfp4", "modelopt_fp4"),
        hardware=(10, 0),
        documented=(9, 0),
        runs_from=(8, 0),
        how="kept as FP4 and computed in 16 bits (weights by Marlin kernels)",
        instead="take the model quantized by AWQ or GPTQ",
    ),
    # 4-bit weights computed in FP8. Both engines have kernels for Hopper and nothing older.
    Precision(
        name="w4afp8",
        names=("w4afp8",),
        hardware=(9, 0),
        documented=(9, 0),
        instead="take the model quantized by AWQ or GPTQ, or its experts in fp8",
        source="SGLang, W4AFp8Config.get_min_capability; vLLM, W4AFP8Config.get_min_capability",
    ),
    Precision(
        name="awq",
        names=("awq",),
        hardware=(7, 5),
        documented=(7, 5),
        instead="take the model quantized by GPTQ",
        source=VLLM_HARDWARE,
    ),
    Precision(
        name="marlin",
        names=("marlin", "gptq_marlin", "awq_marlin"),
        hardware=(8, 0),
        documented=(8, 0),
        instead="set quantization to gptq or awq, which have other kernels",
        source=VLLM_HARDWARE,
    ),
)
_BY_SPELLING: Final = {name: precision for precision in PRECISIONS for name in precision.names}
PARAMETERS: Final = ("dtype", "quantization", "kv-cache-dtype")
COMPUTED_IN: Final = frozenset({"float32", "float16", "bfloat16"})  # what `dtype` chooses among


class Demand(Struct, frozen=True, kw_only=True):
    """What a configuration needs of a GPU, and by which of its parameters."""

    capability: Capability
    precision: Precision
    parameter: str


def precision_named(text: str) -> Precision:
    """Raises RefusedError with the names there are."""
    precision = _BY_SPELLING.get(text.strip().lower())
    if precision is None:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected a precision, one of {', '.join(precision.name for precision in PRECISIONS)};"
            f" got {text!r}",
            path="$.precision",
        )
    return precision


def check_precision(
    gpu_capability: Capability | None,
    precision: Precision,
    *,
    rules: PrecisionRules = PrecisionRules.HARDWARE,
) -> Finding:
    """Judge whether a GPU of this capability (None: unknown) can compute in a number format.

    `documented` is the accelerator guide to the letter; `hardware` corrects it: FP8 needs 8.9
    instead of 8.0, FP4 needs 10.0 instead of 9.0, and formats without hardware units get a verdict
    of their own.
    """
    if gpu_capability is None:
        return Finding(
            verdict=Verdict.CASE_BY_CASE,
            rule="capability_unknown",
            message="its compute capability is not known",
            action="`nvidia-smi --query-gpu=name,compute_cap --format=csv` on its node tells it",
        )
    is_documented = rules is PrecisionRules.DOCUMENTED
    needed = precision.documented if is_documented else precision.hardware
    source = DOCUMENT if is_documented else precision.source
    has, name = f"compute capability {capability_text(gpu_capability)}", precision.name
    if gpu_capability >= needed:
        return Finding(
            verdict=Verdict.SUPPORTED, rule=name, message=f"{name} runs on {has}", source=source
        )
    lacks = (
        f"{name} needs compute capability {capability_text(needed)},"
        f" and this is {capability_text(gpu_capability)}"
    )
    lowest = precision.runs_from
    if is_documented or lowest is None or gpu_capability < lowest:
        return Finding(
            verdict=Verdict.BLOCKED,
            rule=name,
            message=lacks,
            action=precision.instead,
            source=source,
        )
    return Finding(
        verdict=Verdict.CASE_BY_CASE,
        rule=name,
        message=f"{lacks}; engines may run it {precision.how}",
        action=precision.instead,
        source=source,
    )


def demand_of(parameters: Mapping[str, Any], of_model: Iterable[str] = ()) -> Demand | None:
    """The greatest that an engine's parameters make, and a model by the precisions that its
    config.json names; None if every GPU will do.

    It is the least with which they run: FP8 weights do where FP8 is not computed. A `dtype` that is
    given goes before the model's.
    """
    named_precisions = (*_by_parameters(parameters), *_by_model(parameters, of_model))
    demands = (
        Demand(
            capability=precision.runs_from or precision.hardware, precision=precision, parameter=by
        )
        for precision, by in named_precisions
    )
    asking = (demanding for demanding in demands if demanding.capability > EVERY_GPU)
    return max(asking, key=lambda demand: demand.capability, default=None)


def _by_parameters(parameters: Mapping[str, Any]) -> Iterator[tuple[Precision, str]]:
    for name in PARAMETERS:
        value = parameters.get(name)
        precision = _BY_SPELLING.get(value.lower()) if isinstance(value, str) else None
        if precision is not None:
            yield precision, f"{name}={value}"


def _by_model(
    parameters: Mapping[str, Any], of_model: Iterable[str]
) -> Iterator[tuple[Precision, str]]:
    is_dtype_given = parameters.get("dtype") not in (None, "auto")
    for name in of_model:
        precision = _BY_SPELLING.get(name)
        if precision is not None and not (is_dtype_given and precision.name in COMPUTED_IN):
            yield precision, f"{name} of the model's config.json"


def hint_for(needed: Capability) -> str:
    """Return what needs this capability and how to do without it, as the end of a sentence."""
    asking = [
        precision_names.name
        for precision_names in PRECISIONS
        if (precision_names.runs_from or precision_names.hardware) == needed
    ]
    return f" ({', '.join(asking)}); {_HALF} for older GPUs" if asking else ""


class _Quantization(Struct, frozen=True):
    quant_method: str | None = None


class _Text(Struct, frozen=True):
    torch_dtype: str | None = None
    dtype: str | None = None


class _Config(Struct, frozen=True):
    """What of a model's config.json names its precisions; `dtype` is its newer spelling."""

    torch_dtype: str | None = None
    dtype: str | None = None
    text_config: _Text = _Text()
    quantization_config: _Quantization | None = None


def precisions_of_model(config: bytes) -> tuple[Precision, ...]:
    """Return the precisions of a model's config.json: its quantization and its compute type.

    Raises RefusedError for a file that is no config.json; unknown names are left out.
    """
    try:
        read = msgspec.json.decode(config, type=_Config)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RefusedError(
            ErrorCode.BAD_REQUEST, f"this is no model's config.json: {error}"
        ) from error
    text = read.text_config
    quantizations = (
        read.quantization_config.quant_method if read.quantization_config else None,
        read.torch_dtype or read.dtype or text.torch_dtype or text.dtype,
    )
    return tuple(_BY_SPELLING[name] for name in quantizations if name in _BY_SPELLING)
