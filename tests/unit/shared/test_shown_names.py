"""What people are shown: no text of it can pass for another, or for a line of ours."""

from typing import Any

import msgspec
import pytest

from schemas.base import LabelKey, Name, Namespace, NodeId
from schemas.gateway.views import Cause, ReservationRequest, ReturnToService, Withdrawal
from schemas.gpus.gpu_request import GpuRequest
from schemas.orchestrator.experiments import CancelTask
from schemas.scheduler.devices import Cordon, Drain, Uncordon
from schemas.scheduler.nodes import LabelNode, RemoveNode
from schemas.scheduler.reservations import RequestReservation
from schemas.task.task_file import TaskFile
from shared.ids import new_id

TASK = {"task_name": "tune", "base_runtime": "llamacpp", "model": {"id_or_path": "m"}}
COMMAND = {"command_id": str(new_id())}
ON_NODE = {**COMMAND, "node_id": "a"}
HIDDEN = {
    "terminal": "a\x1b[2Kb",
    "newline": "a\nb",
    "newline at the end": "ab\n",
    "zero": "a\0b",
    "C1": "a\x9bb",
    "override": "a\u202eb",
    "isolate": "a\u2066b",
    "mark": "a\u200fb",
    "line separator": "a\u2028b",
}


def given(text: str) -> list[tuple[Any, Any]]:
    """Every place where people give a name, as a type and the data decoded into it."""
    reservation = {**COMMAND, "reservation_id": str(new_id())}
    return [
        (NodeId, text),
        (Namespace, text),
        (Name, text),
        (LabelKey, text),
        (TaskFile, {**TASK, "task_name": text}),
        (TaskFile, {**TASK, "model": {"id_or_path": text}}),
        (TaskFile, {**TASK, "base_runtime": text}),
        (TaskFile, {**TASK, "parameters": {text: [1]}}),
        (TaskFile, {**TASK, "gpus": {"models": [text]}}),
        (TaskFile, {**TASK, "gpus": {"nodes": [text]}}),
        (GpuRequest, {"gpu_models": [text]}),
        (GpuRequest, {"device_uuids": [text]}),
        (GpuRequest, {"require": [{"key": "gpu_model", "values": [text]}]}),
        (ReservationRequest, {"holder": text}),
        (RequestReservation, {**reservation, "holder": text}),
        (RequestReservation, {**reservation, "namespace": text}),
        *((body, {"reason": text}) for body in (Cause, Withdrawal, ReturnToService)),
        *((body, {"set_by": text}) for body in (Cause, Withdrawal)),
        *((command, {**ON_NODE, "reason": text}) for command in (Cordon, Drain, Uncordon)),
        *((command, {**ON_NODE, "set_by": text}) for command in (Cordon, Drain)),
        (RemoveNode, {**ON_NODE, "reason": text}),
        (LabelNode, {**ON_NODE, "labels": {"key": text}}),
        (LabelNode, {**ON_NODE, "labels": {text: "value"}}),
        (CancelTask, {**COMMAND, "task_id": str(new_id()), "reason": text}),
    ]


@pytest.mark.parametrize("text", HIDDEN.values(), ids=HIDDEN)
def test_hidden_character_in_name_is_refused(text: str) -> None:
    taken = []
    for type_, data in given(text):
        try:
            msgspec.convert(_tagged(type_, data), type_)
        except msgspec.ValidationError:
            continue
        taken.append((type_, data))

    assert taken == []


@pytest.mark.parametrize("text", ["a", "A100 40 GB", "für später", "作業", "دليل", "🚀", "x" * 100])
def test_what_people_write_is_taken_in_every_script(text: str) -> None:
    assert msgspec.convert({"reason": text, "set_by": text}, Cause).reason == text
    assert msgspec.convert({"holder": text}, ReservationRequest).holder == text


def test_description_has_lines_but_no_escapes() -> None:
    task = {**TASK, "description": "first\n\tsecond\r\n"}

    assert msgspec.convert(task, TaskFile).description == task["description"]
    for text in ("a\x1b[2K", "a\u202eb"):
        with pytest.raises(msgspec.ValidationError, match=r"description"):
            msgspec.convert({**task, "description": text}, TaskFile)


def _tagged(type_: Any, data: Any) -> Any:
    config = getattr(type_, "__struct_config__", None)
    return {"type": config.tag, **data} if config is not None and config.tag else data
