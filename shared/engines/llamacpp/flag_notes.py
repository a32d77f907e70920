"""What people tune of llama.cpp: a line of help, and the default of its version."""

from typing import Final

from shared.engines.flag_note import FlagNote

NOTES: Final = {
    "threads": FlagNote("CPU threads that generate tokens.", "all cores"),
    "threads-batch": FlagNote("CPU threads that read prompts.", "as threads"),
    "parallel": FlagNote("Requests served at once; they share the context.", "by version"),
    "ctx-size": FlagNote(
        "Context of all requests together, in tokens; 0 is the model's.", "the model's"
    ),
    "batch-size": FlagNote("Most prompt tokens taken at once.", "2048"),
    "ubatch-size": FlagNote("Most prompt tokens computed at once. More needs more memory.", "512"),
    "cont-batching": FlagNote("Take new requests while others are being answered.", "on"),
    "cache-prompt": FlagNote(
        "Keep the cache of a prompt for the next one that begins alike.", "on"
    ),
    "flash-attn": FlagNote("Faster attention that needs less memory.", "auto"),
    "cache-type-k": FlagNote("Precision of the keys in the KV cache.", "f16"),
    "cache-type-v": FlagNote("Precision of the values in the KV cache.", "f16"),
    "gpu-layers": FlagNote("Layers of the model on the GPU.", "by memory"),
}
