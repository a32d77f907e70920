"""What people type wrong in their first hours: files, and lines that each end in a refusal."""

import json
from pathlib import Path
from typing import Any, Final

from msgspec.json import decode, encode

TASK: Final = {
    "task_name": "first-try",
    "deployment_mode": "process",
    "model": {"id_or_path": "simulated-model"},
    "base_runtime": "simulated",
    "parameters": {"tpot-seconds": [0.1, 0.05]},
    "optimization": {"strategy": "grid_search", "objective": "minimize_latency"},
    "benchmark": {"traffic_scenarios": ["D(20,20)"], "num_concurrency": [2], "tool": "builtin"},
}
# A task of each name, with one place changed: (place, value).
CHANGES: Final[dict[str, tuple[str, Any]]] = {
    "name": ("task_name", "first try"),
    "engine": ("base_runtime", "simulatd"),
    "mode": ("deployment_mode", "dockr"),
    "model": ("model", {"path": "x"}),
    "field": ("parametres", {}),
    "namespace": ("namespace", "team-a"),
    "no-value": ("parameters.tpot-seconds", []),
    "objective": ("optimization.objective", "min_latency"),
    "strategy": ("optimization.strategy", "grid"),
    "cost": ("optimization.max_cost", -1),
    "parallel": ("optimization.max_parallel", 1_000_000),
    "scenario": ("benchmark.traffic_scenarios", ["D(20)"]),
    "concurrency": ("benchmark.num_concurrency", [0]),
    "time": ("benchmark.max_time_per_iteration", "2h"),
    "tool": ("benchmark.tool", "genaibench"),
    "slo": ("slo", {"ttft": {"p99": "fast"}}),
    "preset": ("presets", ["nosuch"]),
    "node": ("gpus", {"nodes": ["gpu-99"]}),
    "flags": ("parameters", {"tpot-secnds": [0.1], "slot": [1], "slots": "many"}),
    "several": (
        "optimization",
        {"strategi": "auto", "objective": "min_latency", "max_parallel": "2"},
    ),
    "constraints": ("optimization.constraints", "ttft:p99<300"),
    "no-rows": ("configurations", []),
    "rows": ("configurations", [{"slots": 1}, {"slots": 2, "ttft-seconds": 0.1}]),
    "row-of-lists": ("configurations", [{"slots": [1, 2]}]),
    "row-beside": ("configurations", [{"tpot_seconds": 0.1}]),
    "row-flag": ("configurations", [{"slot": 1}, {"slot": 2}]),
}
FILES: Final[dict[str, bytes]] = {
    "broken.json": b'{\n "task_name": "x",\n}',
    "broken.yaml": b"task_name: x\n parameters: [\n",
    "binary.json": bytes(range(256)),
    "list.json": b"[]",
    "empty.json": b"",
    "fleet.toml": b'[[devices]]\nmodel_name = "A"\n',
}
LINES: Final = (
    *(f"validate {{directory}}/{name}" for name in FILES),
    *(f"submit {{directory}}/{name}.json" for name in CHANGES),
    "validate {directory}/nosuch.json",
    "run {directory}/fleet.toml",
    # Where no platform runs.
    "validate --data-dir {directory}/none {directory}/several.json",
    "run --data-dir {directory}/none {directory}/rows.json",
    "validate --url 127.0.0.1:1 {directory}/rows.json",
    "show first-hour#9",
    "show nosuch",
    "logs nosuch",
    "cancel nosuch --yes",
    "why nosuch",
    "tsaks",
    "ps",
    "squeue",
    "gpus --url 127.0.0.1:1",
    "gpus --url http://nosuch.invalid:1",
    "nodes --jsn",
    "tasks --state done",
    "reservations --state held",
    "reserve",
    "reserve --gpus none",
    "reserve --gpus 9999",
    "reserve --gpus 1 --shares 0.5",
    "reserve --gpus 1 --model A100",
    "reserve --gpus 1 --node gpu-99",
    "reserve --gpus 1 --min-memory 40X",
    "reserve --gpus 1 --min-memory 400G",
    "reserve --gpus 1 --duration 2x",
    "reserve --gpus 1 --require colour=red",
    "reserve --shares 0.333",
    "exec --gpus 1 -- nosuchcommand",
    "exec --gpus 1 --",
    "release nosuch --yes",
    "cordon alpha/",
    "cordon alpha/99",
    "drain nosuch --yes",
    "node admit gpu-30",
    "power alpha/0 fast",
    "report usage --by persn",
    "report usage --last 7days",
    "report task nosuch",
    "select-node many",
    "token create --role king",
    "token revoke nosuch",
    "agent-credentials 'gpu 01'",
    "new --engine vlm",
    "bench run 127.0.0.1:1",
    "bench run 127.0.0.1:1 --scenario 'D(x)'",
    "up --port 99999",
    "completion fsh",
    "export nosuch",
)


def write_files(directory: Path) -> None:
    """Write the files that the lines name."""
    for name, content in FILES.items():
        (directory / name).write_bytes(content)
    for name, (place, value) in CHANGES.items():
        task = decode(encode(TASK))
        *path, last = place.split(".")
        target = task
        for step in path:
            target = target[step]
        target[last] = value
        (directory / f"{name}.json").write_text(json.dumps(task))
