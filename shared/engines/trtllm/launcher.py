"""How `trtllm-serve` gets what it takes in a file alone.

Its command line has few flags; speculative decoding, KV offload and LoRA are blocks of a YAML file
(`--config`). A program of a few lines writes that file of the arguments that end in `_config`, and
becomes `trtllm-serve`: so a container needs no file of the host. Without the two settings it adds
there is no Prometheus page.
"""

from typing import Final

_SCRIPT: Final = """\
import json, os, sys, tempfile
settings = {"return_perf_metrics": True, "enable_iter_perf_stats": True}
words, rest = sys.argv[1:], []
while words:
    word = words.pop(0)
    if word.startswith("--") and word.endswith("_config"):
        settings[word[2:]] = json.loads(words.pop(0))
    else:
        rest.append(word)
file = tempfile.NamedTemporaryFile("w", suffix=".yaml", delete=False)
json.dump(settings, file)
file.close()
os.execvp("trtllm-serve", ["trtllm-serve", *rest, "--config", file.name])
"""
PROGRAM: Final = ("python3", "-c", _SCRIPT)
