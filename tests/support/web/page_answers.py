"""The gateway's answers that the page's tests draw: `python -m tests.support.web.page_answers`.

They are recorded from a real platform with the simulated fleet, and are to be recorded again where
`tests/contract/test_page_answers.py` says that they no longer fit the messages.
"""

import asyncio
import json
import socket
import sys
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from schemas.formats.json_schema import structs
from shared.testing import eventually, short_directory
from tests.support.paths import ROOT
from tests.support.processes.platform import PlatformProcess, quick_task

FILE: Final = ROOT / "services/gateway/web/src/testing/answers.json"
NODE: Final = "gpu-01"
# What tells of the machine that recorded, and what stands in its place.
PLACES: Final = {
    sys.executable: "/opt/gpusteward/bin/python",
    f'"{socket.gethostname()}"': f'"{NODE}"',
}
LONGEST: Final = 6  # points of a series, events: the page's tests need no more

# By name: type of the answer, and the path below /api/v1 with the names of `_fill` in braces.
ANSWERS: Final[Mapping[str, tuple[str, str]]] = {
    "me": ("Me", "/me"),
    "namespaces": ("NamespaceList", "/namespaces"),
    "gpus": ("GpuList", "/gpus"),
    "nodes": ("NodeList", "/nodes"),
    "clusterDevices": ("ClusterDeviceList", "/cluster/devices"),
    "holding": ("ReservationList", "/reservations?state=granted,active,releasing"),
    "waiting": ("ReservationList", "/reservations?state=queued"),
    "past": ("ReservationList", "/reservations?state=released,expired,preempted,cancelled,lost"),
    "explanation": ("Explanation", "/reservations/{waiting}/explain"),
    "tasks": ("TaskList", "/tasks"),
    "task": ("TaskView", "/tasks/{task}"),
    "experimentsOfTask": ("ExperimentDetails", "/tasks/{task}/experiments"),
    "experiments": ("ExperimentDetails", "/experiments?monitoring=false"),
    "experiment": ("ExperimentDetail", "/experiments/{experiment}"),
    "engineSeries": ("EngineSeriesView", "/experiments/{experiment}/engine"),
    "log": ("LogChunk", "/experiments/{experiment}/logs"),
    "requests": ("RequestsView", "/experiments/{experiment}/requests?level=0"),
    "events": ("EventList", "/events?task_id={task}"),
    "waterfall": ("WaterfallView", "/reports/waterfall/{task}"),
    "fleetSeries": ("SeriesView", "/series?metric=utilization_percent&by=fleet"),
    "gpuSeries": ("SeriesView", "/series?metric=utilization_percent"),
    "nodeSeries": ("SeriesView", "/series?metric=utilization_percent&by=node"),
    "pods": ("PodList", "/pods"),
    "presets": ("PresetList", "/presets"),
    "engines": ("EngineList", "/engines"),
    "usage": ("UsageView", "/reports/gpu-time?by=namespace&daily=true"),
    "waste": ("WasteView", "/reports/waste"),
    "waits": ("WaitsView", "/reports/waits"),
    "failures": ("FailuresView", "/reports/failures"),
    "tokens": ("TokenList", "/tokens"),
    "audit": ("AuditList", "/audit"),
    "datasets": ("DatasetList", "/datasets"),
    "secrets": ("SecretList", "/secrets"),
    "decisions": ("DecisionList", "/decisions?limit=3&before_id=1000000"),
    "drifts": ("DriftList", "/drifts"),
    "plan": ("TaskPlan", "/tasks/validate"),
    "availability": ("AvailabilityView", "/availability"),
}
# What answers a POST, by name: the body is this field of another answer.
SENT: Final[Mapping[str, tuple[str, str]]] = {
    "plan": ("task", "task"),
    "availability": ("experiment", "request"),
}


def type_of(name: str) -> type[Struct]:
    """Return the message that the answer of this name is."""
    return {cls.__name__: cls for cls in structs()}[ANSWERS[name][0]]


async def record() -> dict[str, Any]:
    """Start a platform, let it do a little of everything, and return its answers by name."""
    with short_directory() as directory:
        platform = PlatformProcess(directory / "data", arguments=("--simulate", "--node-id", NODE))
        try:
            await platform.start()
            names = await _fill(platform)
            answers = {
                name: _shortened(await _read(platform, path.format(**names)))
                for name, (_, path) in ANSWERS.items()
                if name not in SENT
            }
            for name, (source, field) in SENT.items():
                body = answers[source][field]
                answers[name] = await _read(platform, ANSWERS[name][1], body)
        finally:
            await platform.stop()
    return answers


async def _fill(platform: PlatformProcess) -> dict[str, str]:
    broken = quick_task("engine-that-dies", parameters={"die-after-requests": [3]})
    await platform.until_finished(await platform.submit(broken))
    task = await platform.until_finished(await platform.submit(quick_task("chat-latency")))
    await platform.request("POST", "/api/v1/secrets/HF_TOKEN", {"value": "of no engine"})
    await platform.request("POST", "/api/v1/datasets?name=chats.jsonl", {"prompt": "of nobody"})
    for holder, gpus in (("anna", 1), ("marek", 2)):
        body = {"namespace": "default", "holder": holder, "request": {"gpus": gpus}}
        status, answer = await platform.request("POST", "/api/v1/reservations", body)
        assert status == 201, answer

    async def waits() -> bool:
        return bool((await _read(platform, "/reservations?state=queued"))["reservations"])

    async def is_rolled_up() -> bool:
        return bool((await _read(platform, "/series?metric=power_draw_w"))["devices"])

    await eventually(waits, within_seconds=20)
    await eventually(is_rolled_up, within_seconds=60)
    [waiting] = (await _read(platform, "/reservations?state=queued"))["reservations"]
    return {
        "task": task["task_id"],
        "experiment": task["best_experiment_id"],
        "waiting": waiting["reservation_id"],
    }


async def _read(platform: PlatformProcess, path: str, body: object = None) -> Any:
    method = "GET" if body is None else "POST"
    status, answer = await platform.request(method, f"/api/v1{path}", body)
    assert status == 200, (path, answer)
    return answer


def _shortened(value: Any) -> Any:
    if isinstance(value, list):
        is_point = any(isinstance(item, float) for item in value)
        return [_shortened(item) for item in (value if is_point else value[:LONGEST])]
    if isinstance(value, dict):
        return {key: _shortened(item) for key, item in value.items()}
    return value


def main() -> None:
    """Record the answers anew."""
    FILE.parent.mkdir(exist_ok=True)
    lines = (
        f"{json.dumps(name)}: {json.dumps(body)}" for name, body in asyncio.run(record()).items()
    )
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    for place, name in PLACES.items():
        text = text.replace(place, name)
    FILE.write_text(text)


if __name__ == "__main__":
    main()
