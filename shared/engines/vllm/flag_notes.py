"""What people tune of vLLM: a line of help, and the default of its version."""

from typing import Final

from shared.engines.flag_note import FlagNote

NOTES: Final = {
    "gpu-memory-utilization": FlagNote(
        "Share of the GPU's memory that the engine takes; the rest stays free.", "0.9 or 0.92"
    ),
    "max-num-seqs": FlagNote(
        "Most sequences decoded together. More favours throughput over latency.", "by GPU"
    ),
    "max-num-batched-tokens": FlagNote(
        "Most tokens of one step. More favours throughput and long prompts.", "by GPU"
    ),
    "max-model-len": FlagNote(
        "Longest prompt with its answer, in tokens. Less leaves memory for more sequences.",
        "the model's",
    ),
    "tensor-parallel-size": FlagNote("GPUs that each layer is divided over.", "1"),
    "pipeline-parallel-size": FlagNote(
        "Groups of GPUs that the layers are divided over, one after another.", "1"
    ),
    "data-parallel-size": FlagNote("Copies of the model that share the requests.", "1"),
    "enable-expert-parallel": FlagNote(
        "Divide a mixture of experts by expert instead of by layer.", "off"
    ),
    "enable-prefix-caching": FlagNote("Keep the cache of prompts that begin alike.", "on"),
    "enable-chunked-prefill": FlagNote(
        "Mix parts of long prompts with decoding, so that answers do not stall.", "on"
    ),
    "block-size": FlagNote("Tokens in one block of the KV cache.", "by platform"),
    "kv-cache-dtype": FlagNote(
        "Precision of the KV cache. fp8 holds about twice as many tokens.", "auto"
    ),
    "dtype": FlagNote("Precision of weights and activations.", "auto"),
    "quantization": FlagNote(
        "How the weights are quantized; the model has to fit it.", "the model's"
    ),
    "enforce-eager": FlagNote("Do without CUDA graphs: a faster start, slower decoding.", "off"),
    "cpu-offload-gb": FlagNote(
        "Weights kept in the host's memory, GiB of each GPU. Slow; for models that do not fit.", "0"
    ),
    "scheduling-policy": FlagNote("Order of waiting requests: first come, or by priority.", "fcfs"),
    "async-scheduling": FlagNote(
        "Plan the next step while the GPU computes this one.", "by version"
    ),
    "stream-interval": FlagNote("Tokens between two pieces of a streamed answer.", "1"),
    "attention-backend": FlagNote("Kernels that compute attention.", "by GPU"),
    "speculative-config": FlagNote(
        "Draft model or method of speculative decoding, as an object.", "none"
    ),
}
