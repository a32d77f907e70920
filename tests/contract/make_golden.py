"""Writes a golden message of every type without one: `python -m tests.contract.make_golden`.

Values are computed from the types alone, so that every field is filled and every run writes the
same. Files that exist are never overwritten: they are what an older release has sent.
"""

import hashlib
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import Struct, inspect

from schemas.catalog import MESSAGES, PUBLIC, REPLIES
from schemas.errors import Accepted, Refused
from schemas.executor import attempts as executor
from schemas.gpus import gpu_request
from schemas.orchestrator import views as orchestrator_views
from schemas.task import dataset, trace
from schemas.task import task_file as task

DIRECTORY: Final = Path(__file__).parent / "golden"
NOON: Final = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
TEXTS: Final = {
    "engine": "llamacpp",
    "executor_id": "a100-3",
    "holder": "experiment/019b8e50-7000-7000-8000-000000000001",
    "hostname": "a100-3.example.org",
    "id_or_path": "HuggingFaceTB/SmolLM2-135M-Instruct",
    "model": "HuggingFaceTB/SmolLM2-135M-Instruct",
    "mount_path": "/mnt/models",
    "name": "NVIDIA A100-SXM4-80GB",
    "namespace": "default",
    "node_id": "a100-3",
    "path": "$.task.parameters",
    "task_name": "tune-smollm2",
}
FITTING: Final = (
    "a100-3",
    "D(100,100)",
    "8.0",
    "trace",
    "vendor.com/npu",
    "HF_TOKEN",
    "http://gpu-01:8000",
    "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
)  # for patterns
SHARES: Final = frozenset(
    {
        *("allocated", "availability_score", "error_rate", "fraction", "prefix_share", "score"),
        "success_rate",
    }
)
DEVICE_UUIDS: Final = frozenset({"uuid", "device_uuid", "device_uuids", "parent_uuid"})

# Where one field excludes another.
OVERRIDES: Final[dict[type[Struct], dict[str, Any]]] = {
    executor.AttemptFinished: {"failure": None},
    gpu_request.GpuRequest: {  # read as the others
        "vgpu_cores": None,
        "vgpu_memory_mb": None,
        "share_units": None,
        "units_per_gpu": 1,
    },
    dataset.DatasetSpec: {"url": None, "upload": None},  # it has a path
    trace.TraceSpec: {"url": None, "upload": None},
    task.TaskFile: {"engines": ()},  # it has a base_runtime
    task.OptimizationSpec: {"objectives": ()},  # whose first is `objective`
    orchestrator_views.ExperimentView: {"failure": None, "waiting_reasons": ()},
}


def covered() -> dict[str, type[Struct]]:
    """Every type that travels, by the name of its golden files."""
    # A view of the gateway may have the tag of its owner's, which then has the files.
    types: tuple[type[Struct], ...] = (*PUBLIC, *MESSAGES, *REPLIES.values(), Accepted, Refused)
    by_name = {golden_name(cls): cls for cls in types}
    return dict(sorted(by_name.items()))


def golden_name(cls: type[Struct]) -> str:
    """The type's tag; a type without one goes by its class name."""
    tag = cls.__struct_config__.tag
    return tag if isinstance(tag, str) else cls.__name__


class Maker:
    """Makes one message; numbers and times grow from field to field."""

    def __init__(self) -> None:
        self._count = 0

    def struct(self, cls: type[Struct]) -> Struct:
        """An instance with every field filled."""
        info = inspect.type_info(cls)
        assert isinstance(info, inspect.StructType)
        values = {field.name: self._value(field.type, field.name) for field in info.fields}
        for field in info.fields:
            value = values[field.name]
            if isinstance(value, bool | Enum) and value == field.default:
                values[field.name] = _another(value)
        return cls(**(values | OVERRIDES.get(cls, {})))

    def _value(self, kind: inspect.Type, name: str) -> Any:
        if isinstance(kind, inspect.Metadata):
            return self._value(kind.type, name)
        make = self._makers().get(type(kind))
        if make is None:
            raise TypeError(f"no golden value for {kind!r} in the field {name}")
        return make(kind, name)

    def _makers(self) -> dict[type[inspect.Type], Callable[[Any, str], Any]]:
        return {
            inspect.AnyType: lambda _, name: {"of": name, "number": 1, "list": [True, None, 0.5]},
            inspect.BoolType: lambda *_: True,
            inspect.BytesType: lambda *_: bytes([self._next()]),
            inspect.DateTimeType: lambda *_: NOON + timedelta(seconds=self._next()),
            inspect.DictType: lambda kind, name: {
                self._value(kind.key_type, "key"): self._value(kind.value_type, name)
            },
            inspect.EnumType: lambda kind, _: next(iter(kind.cls)),
            inspect.FloatType: self._float,
            inspect.IntType: lambda kind, _: _within(kind, self._next()),
            inspect.LiteralType: lambda kind, _: kind.values[0],
            inspect.StrType: _text,
            inspect.StructType: lambda kind, _: self.struct(kind.cls),
            inspect.UnionType: lambda kind, name: self._value(_first_real(kind), name),
            inspect.UUIDType: lambda _, name: _uuid(name),
            inspect.VarTupleType: lambda kind, name: (self._value(kind.item_type, name),),
        }

    def _float(self, kind: inspect.FloatType, name: str) -> float:
        return 0.25 if name in SHARES else _within(kind, self._next() + 0.5)

    def _next(self) -> int:
        self._count += 1
        return self._count


def _another(value: bool | Enum) -> bool | Enum:
    if isinstance(value, bool):
        return not value
    return next((other for other in type(value) if other is not value), value)


def _first_real(kind: inspect.UnionType) -> inspect.Type:
    return next(option for option in kind.types if not isinstance(option, inspect.NoneType))


def _within(kind: inspect.IntType | inspect.FloatType, value: float) -> float:
    low = kind.ge if kind.ge is not None else kind.gt
    if low is not None and value <= low:
        value = low + 1
    if kind.le is not None and value > kind.le:
        value = kind.le
    return int(value) if isinstance(kind, inspect.IntType) else float(value)


def _text(kind: inspect.StrType, name: str) -> str:
    if name in DEVICE_UUIDS:
        return f"GPU-{_uuid(name)}"
    text = TEXTS.get(name, name.replace("_", " "))
    if name == "url" and kind.max_length is not None:  # its form is held to by its struct
        return next(text for text in FITTING if text.startswith("http"))
    if kind.pattern is None or re.search(kind.pattern, text):
        return text
    return next(text for text in FITTING if re.search(kind.pattern, text))


def _uuid(name: str) -> UUID:
    return UUID(f"019b8e50-7000-7000-8000-{hashlib.sha256(name.encode()).hexdigest()[:12]}")


def make(cls: type[Struct]) -> Struct:
    """The golden message of a type, as the first release that knows the type sends it."""
    return Maker().struct(cls)


def main() -> int:
    """Write what is missing; say what was written."""
    DIRECTORY.mkdir(exist_ok=True)
    for name, cls in covered().items():
        binary, readable = (DIRECTORY / f"{name}.{suffix}" for suffix in ("msgpack", "json"))
        if binary.exists() and readable.exists():
            continue
        if binary.exists() or readable.exists():
            sys.stderr.write(f"{name}: one of its two files is missing; restore it from git\n")
            return 1
        message = make(cls)
        binary.write_bytes(msgspec.msgpack.encode(message))
        readable.write_bytes(msgspec.json.format(msgspec.json.encode(message), indent=2) + b"\n")
        sys.stdout.write(f"{name}: written\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
