"""What people tune of TensorRT-LLM: a line of help, and the default of its version."""

from typing import Final

from shared.engines.flag_note import FlagNote

NOTES: Final = {
    "tp-size": FlagNote("GPUs that each layer is divided over.", "1"),
    "pp-size": FlagNote("Groups of GPUs that the layers are divided over, one after another.", "1"),
    "ep-size": FlagNote("GPUs that the experts of a mixture are divided over.", "none"),
    "max-batch-size": FlagNote(
        "Most requests of one step. More favours throughput over latency.", "2048"
    ),
    "max-num-tokens": FlagNote(
        "Most tokens of one step. More favours throughput and long prompts.", "8192"
    ),
    "max-seq-len": FlagNote("Longest prompt with its answer, in tokens.", "the model's"),
    "free-gpu-memory-fraction": FlagNote(
        "Share of the memory that weights leave free for the KV cache.", "0.9"
    ),
    "enable-chunked-prefill": FlagNote(
        "Mix parts of long prompts with decoding, so that answers do not stall.", "off"
    ),
    "backend": FlagNote(
        "Which of its runtimes serves: pytorch, tensorrt or _autodeploy.", "pytorch"
    ),
    "kv-cache-config": FlagNote(
        "The KV cache as an object: its precision, reuse, and host_cache_size in bytes.", "none"
    ),
    "speculative-config": FlagNote(
        "Draft model or method of speculative decoding, as an object.", "none"
    ),
    "scheduler-config": FlagNote(
        "Whether requests may be evicted to fill the batch, as an object.", "GUARANTEED_NO_EVICT"
    ),
    "cuda-graph-config": FlagNote("Batch sizes that CUDA graphs are captured for.", "by batch"),
    "moe-config": FlagNote("Kernels of a mixture of experts, as an object.", "auto"),
}
