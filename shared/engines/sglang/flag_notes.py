"""What people tune of SGLang: a line of help, and the default of its version."""

from typing import Final

from shared.engines.flag_note import FlagNote

NOTES: Final = {
    "mem-fraction-static": FlagNote(
        "Share of the GPU's memory for weights and KV cache.", "by GPU"
    ),
    "max-running-requests": FlagNote("Most requests decoded together.", "by memory"),
    "chunked-prefill-size": FlagNote(
        "Most tokens of a prompt in one step; -1 turns it off.", "by GPU"
    ),
    "max-prefill-tokens": FlagNote("Most prompt tokens of one batch.", "16384"),
    "tp-size": FlagNote("GPUs that each layer is divided over.", "1"),
    "dp-size": FlagNote("Copies of the model that share the requests.", "1"),
    "pp-size": FlagNote("Groups of GPUs that the layers are divided over, one after another.", "1"),
    "ep-size": FlagNote("GPUs that the experts of a mixture are divided over.", "1"),
    "context-length": FlagNote("Longest prompt with its answer, in tokens.", "the model's"),
    "schedule-policy": FlagNote(
        "Order of waiting requests, such as fcfs or lpm (longest shared prefix first).", "fcfs"
    ),
    "schedule-conservativeness": FlagNote(
        "More than 1 admits fewer requests; less risks that some are taken back.", "1.0"
    ),
    "attention-backend": FlagNote("Kernels that compute attention.", "by GPU"),
    "kv-cache-dtype": FlagNote("Precision of the KV cache.", "auto"),
    "dtype": FlagNote("Precision of weights and activations.", "auto"),
    "quantization": FlagNote(
        "How the weights are quantized; the model has to fit it.", "the model's"
    ),
    "page-size": FlagNote("Tokens in one page of the KV cache.", "by backend"),
    "cuda-graph-max-bs": FlagNote("Largest batch for which a CUDA graph is recorded.", "by GPU"),
    "disable-cuda-graph": FlagNote(
        "Do without CUDA graphs: a faster start, slower decoding.", "off"
    ),
    "disable-radix-cache": FlagNote("Forget the cache of prompts that begin alike.", "off"),
    "enable-mixed-chunk": FlagNote("Mix parts of long prompts with decoding in one batch.", "off"),
    "enable-torch-compile": FlagNote(
        "Compile the model: a longer start, faster small batches.", "off"
    ),
    "stream-interval": FlagNote("Tokens between two pieces of a streamed answer.", "1"),
}
