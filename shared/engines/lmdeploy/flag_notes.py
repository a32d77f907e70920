"""What people tune of LMDeploy: a line of help, and the default of its version."""

from typing import Final

from shared.engines.flag_note import FlagNote

NOTES: Final = {
    "tp": FlagNote("GPUs that each layer is divided over.", "1"),
    "dp": FlagNote("Copies of the model that share the requests.", "1"),
    "cache-max-entry-count": FlagNote("Share of the free GPU memory for the KV cache.", "0.8"),
    "max-batch-size": FlagNote("Most sequences decoded together.", "by GPU"),
    "session-len": FlagNote("Longest prompt with its answer, in tokens.", "the model's"),
    "quant-policy": FlagNote("Bits of the KV cache: 0 is not quantized, 4 or 8.", "0"),
    "max-prefill-token-num": FlagNote("Most prompt tokens of one step.", "8192"),
    "cache-block-seq-len": FlagNote("Tokens in one block of the KV cache.", "64"),
    "enable-prefix-caching": FlagNote("Keep the cache of prompts that begin alike.", "off"),
    "backend": FlagNote("Which of its two engines runs: turbomind or pytorch.", "turbomind"),
    "dtype": FlagNote("Precision of weights and activations.", "auto"),
    "eager-mode": FlagNote("Do without CUDA graphs: a faster start, slower decoding.", "off"),
}
