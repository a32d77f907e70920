"""Texts of inference engines and of the host below them: ports, disks, models, parameters."""

from functools import partial
from typing import Final

from schemas.executor.attempts import FailureKind
from shared.engines.table import PROFILES
from shared.known_failure import Known, known_failure

_bad_parameter = partial(known_failure, FailureKind.BAD_PARAMETER)
_model_missing = partial(known_failure, FailureKind.MODEL_MISSING)

HOST: Final[tuple[Known, ...]] = (
    known_failure(
        FailureKind.PORT_TAKEN,
        "another program listens on the port",
        "`ss -ltnp` shows which; without a port given the executor chooses a free one",
        pattern=(
            r"address already in use|errno 98\b|EADDRINUSE|couldn't bind"
            r"|port is already allocated|only one usage of each socket address"
        ),
        example=(
            "Error starting userland proxy: listen tcp4 127.0.0.1:18996: bind: address already in "
            "use"
        ),
        source="Docker 20.10.24, uvicorn and our servers, measured; llama.cpp (couldn't bind)",
    ),
    known_failure(
        FailureKind.DISK_FULL,
        "a disk is full",
        "`df -h` and `df -i` show which; `docker system df` and `docker image prune` for Docker's, "
        "`huggingface-cli delete-cache` for models",
        pattern=(
            r"no space left on device|\bENOSPC\b|errno 28\b|disk quota exceeded|errno 122\b"
            r"|database or disk is full|not enough free disk space"
        ),
        example="failed to register layer: write /usr/lib/libtorch.so: no space left on device",
        source="Linux (ENOSPC measured in a container, EDQUOT), SQLite; Docker",
    ),
)

MODELS: Final[tuple[Known, ...]] = (
    _model_missing(
        "the model is gated: its owner has to admit you first",
        "accept its terms on its page, then give the node a token: HF_TOKEN in the agent's "
        "environment, or `huggingface-cli login`",
        pattern=r"gated repo|access to model \S+ is restricted|GatedRepoError",
        example="OSError: You are trying to access a gated repo.",
        source="huggingface_hub, transformers",
    ),
    _model_missing(
        "the model has no such file or revision",
        "look at its page for the revision and the files that it has; not every model is kept in "
        "the form that the engine reads",
        pattern=r"(Entry|Revision) ?Not ?Found(Error| for url)",
        example="huggingface_hub.errors.RevisionNotFoundError: 404 Client Error.",
        source="huggingface_hub",
        is_final=True,
    ),
    _model_missing(
        "there is no such model at Hugging Face, or it is not for everybody",
        "check the id's spelling (OWNER/NAME); a private model wants a token that may read it: "
        "HF_TOKEN in the agent's environment",
        pattern=(
            r"repository not found for url|RepositoryNotFoundError"
            r"|is not a (local folder|valid model identifier)"
        ),
        example="Repository Not Found for url: https://huggingface.co/api/models/no/such.",
        source="huggingface_hub, transformers",
        is_final=True,
    ),
    _model_missing(
        "there is no such model on the node",
        "check the path, or the id's spelling (OWNER/NAME); a path has to lie below the node's "
        "model roots (GPUSTEWARD_EXECUTOR_MODEL_ROOTS)",
        pattern=(
            r"HFValidationError|expected a GGUF file or one of"
            r"|gguf_init_from_file: failed to open|does not appear to have a file named"
            r"|no such file or directory: '[^']*(config\.json|\.safetensors|\.gguf)'"
            r"|cannot find any model weights|is not a directory that holds a model"
            r"|model (path|file|directory) \S+ (does not exist|not found)"
        ),
        example="gguf_init_from_file: failed to open GGUF file '/models/x.gguf'",
        source="huggingface_hub, transformers, vLLM, llama.cpp; our own server, measured",
    ),
    _model_missing(
        "Hugging Face does not accept the token",
        "it is wrong, has ended, or may not read this model: `huggingface-cli whoami` tells; set "
        "HF_TOKEN anew in the agent's environment",
        pattern=(
            r"40[13] Client Error: (Unauthorized|Forbidden) for url: https://huggingface"
            r"|Invalid (credentials in Authorization header|user token|username or password)"
            r"|token is required|LocalTokenNotFoundError"
        ),
        example="401 Client Error: Unauthorized for url: https://huggingface.co/api/models/x/y",
        source="huggingface_hub",
    ),
    _model_missing(
        "the model could not be downloaded",
        "fetch it beforehand, `huggingface-cli download OWNER/NAME`, or check the node's network, "
        "proxy and HF_ENDPOINT",
        pattern=(
            r"couldn't connect to ['\"]?https://huggingface|LocalEntryNotFoundError"
            r"|OfflineModeIsEnabled|cannot reach https://huggingface|HfHubHTTPError"
            r"|(429|5\d\d) (Client|Server) Error: .*huggingface"
            r"|host='huggingface\.co'.*Max retries"
        ),
        example="OSError: We couldn't connect to 'https://huggingface.co' to load the files",
        source="huggingface_hub, transformers",
    ),
    _model_missing(
        "the model's files are damaged, or parts of it are not there",
        "fetch them again: `huggingface-cli download OWNER/NAME --force-download`; compare sizes "
        "with those on its page",
        pattern=(
            r"SafetensorError|MetadataIncompleteBuffer|HeaderTooLarge|invalid magic (number|char)"
            r"|tensor '[^']*' data is not within the file bounds|expected sha256 "
            r"|weight map is missing|PytorchStreamReader failed"
            r"|weights were not initialized from checkpoint|wrong number of tensors"
            r"|missing tensor '|create_tensor: tensor '[^']*' not found|size mismatch for "
            r"|can't load tokenizer for|unable to load vocabulary"
            r"|tokenizer class \S+ does not exist"
        ),
        example="safetensors_rust.SafetensorError: Error while deserializing header",
        source="safetensors, PyTorch, llama.cpp; our own server, measured",
    ),
    _bad_parameter(
        "the model wants code of its own to be run",
        "a task may not ask for trust-remote-code, because a process does not isolate it; take a "
        "model that the engine knows by itself",
        pattern=(
            r"contains custom code which must be executed"
            r"|(pass|passing|set|setting)[^\n]{0,40}trust[-_]remote[-_]code"
        ),
        example=(
            "The repository for x/y contains custom code which must be executed to correctly load "
            "the model."
        ),
        source="transformers",
    ),
    _bad_parameter(
        "this version of the engine does not know the model's architecture",
        "take a newer engine or image (`image_tag`), or another engine",
        pattern=(
            r"model architectures? .* (is|are) not supported|unknown model architecture"
            r"|does not recognize this architecture"
        ),
        example="ValueError: Model architectures ['FooForCausalLM'] are not supported for now.",
        source="vLLM, llama.cpp, transformers",
    ),
    _model_missing(
        "the engine could not load the model",
        "the lines before say why; a GGUF file is for llama.cpp, safetensors for vLLM and SGLang",
        pattern=r"error loading model|failed to load model|llama\.cpp did not start",
        example="llama_model_load: error loading model: failed to read magic",
        source="llama.cpp; our own server, measured",
        is_consequence=True,
    ),
)

# What one engine alone writes.
OF_ONE_ENGINE: Final[tuple[Known, ...]] = tuple(
    failure for profile in PROFILES.values() for failure in profile.failures
)

PARAMETERS: Final[tuple[Known, ...]] = (
    _bad_parameter(
        "the context is longer than the model allows",
        "lower max-model-len or context-length to what the model's config.json names "
        "(max_position_embeddings)",
        pattern=r"is greater than the derived (max_model_len|context_length)",
        example=(
            "User-specified max_model_len (32768) is greater than the derived max_model_len "
            "(max_position_embeddings=8192)."
        ),
        source="vLLM, SGLang",
    ),
    _bad_parameter(
        "the model cannot be divided over that many GPUs",
        "choose a tensor-parallel-size that divides its number of attention heads (config.json: "
        "num_attention_heads), mostly 1, 2, 4 or 8",
        pattern=(
            r"must be divisible by (the )?(tensor|tp|dp)"
            r"|not divisible by (tensor|tp|the tensor|min_thread|weight quantization|block)"
        ),
        example=(
            "Total number of attention heads (14) must be divisible by tensor parallel size (4)."
        ),
        source="vLLM, SGLang",
    ),
    _bad_parameter(
        "the quantization that was asked for is not the model's, or not known",
        "leave `quantization` out, so that the engine takes what the model's config.json names; "
        "a number format that it does not go with is changed by `dtype`",
        pattern=(
            r"quantization method specified in the model config|unknown quantization method"
            r"|cannot find the config file for \w+$|is not supported for quantization method"
            r"|quantization .*(does not match|is not supported)"
        ),
        example="ValueError: Unknown quantization method: awqq. Must be one of ['awq', 'fp8'].",
        source="vLLM, SGLang",
    ),
    _bad_parameter(
        "two parameters contradict each other",
        "the line names both and the bound that the engine wants between them",
        pattern=(
            r"max_num_batched_tokens \(\d+\) is smaller|exceeds? the total number of available GPUs"
            r"|must be (greater|larger|less|smaller) than or equal to \w+ \(\d+\)"
        ),
        example="ValueError: max_num_batched_tokens (2048) is smaller than max_model_len (8192).",
        source="vLLM",
    ),
    _bad_parameter(
        "the engine does not know a parameter, or not this value",
        "the line names it; `vllm serve --help=all`, `python -m sglang.launch_server --help` or "
        "`llama-server --help` of that version list what it takes",
        pattern=(
            r"unrecognized arguments|error: argument |error: invalid argument|invalid choice: "
            r"|error: unknown argument|error while handling argument|no such option"
            r"|validation errors? for \w*(Config|Args)|expected one argument"
            r"|error: the following arguments are required|ambiguous option"
        ),
        example="vllm serve: error: unrecognized arguments: --max-batch 8",
        source="Python's argparse (vLLM, SGLang, our servers, measured), llama.cpp, pydantic",
    ),
)

PROGRAMS: Final[tuple[Known, ...]] = (
    known_failure(
        FailureKind.ENGINE_MISSING,
        "the processor lacks instructions that the engine is built with",
        "take a build for it: `lscpu | grep -o 'avx[^ ]*'` lists what it has",
        pattern=r"^.*illegal instruction",
        example="Illegal instruction (core dumped)",
        source="Linux, SIGILL",
    ),
    known_failure(
        FailureKind.ENGINE_MISSING,
        "the engine compiles code at its start, and the compiler is not there",
        "install it in the engine's environment: the CUDA toolkit (nvcc, CUDA_HOME) of its "
        "PyTorch's version, gcc and ninja; or use its image",
        pattern=(
            r"could not find nvcc|CUDA_HOME environment variable is not set|'nvcc'$"
            r"|failed to find C compiler|ninja is required|Python\.h: no such file"
        ),
        example="RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda'",
        source="PyTorch, FlashInfer, Triton",
    ),
    known_failure(
        FailureKind.ENGINE_MISSING,
        "the engine's installation is not complete",
        "install what the line names into the engine's environment, or use its image",
        pattern=(
            r"ModuleNotFoundError: |ImportError: .*cannot open shared object file|command not found"
            r"|ImportError: .*(cannot import name|not installed|were not found in your environment)"
            r"|AttributeError: module '[\w.]+' has no attribute"
            r"|error while loading shared libraries|undefined symbol: |GLIBC(XX)?_[\d.]+' not found"
        ),
        example="ModuleNotFoundError: No module named 'vllm'",
        source="CPython, ld.so, shells",
    ),
)
