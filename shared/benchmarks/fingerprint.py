"""What a measurement is made with: this host, and what the engine says of itself."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from schemas.task.fingerprint import EngineFacts, LoadHost
from shared.benchmarks.chat_server import ChatServer
from shared.benchmarks.tools.adapter import Target

MAX_ARGUMENTS: Final = 300
MAX_VALUE_CHARACTERS: Final = 200
_VERSION_PATHS: Final = ("/version",)  # vLLM, TensorRT-LLM
_ARGUMENT_PATHS: Final = ("/get_server_info", "/props")  # SGLang; llama.cpp
_SECRETS: Final = ("key", "token", "secret", "password")
_CPU: Final = Path("/sys/devices/system/cpu")
_NUMA: Final = Path("/sys/devices/system/node/online")


def read_load_host(
    cpu: Path = _CPU, numa: Path = _NUMA, info: Path = Path("/proc/cpuinfo")
) -> LoadHost:
    """Return what the kernel says of this host's processors."""
    governors = {_read(path) for path in cpu.glob("cpu[0-9]*/cpufreq/scaling_governor")}
    names = (
        line.partition(":")[2].strip()
        for line in _read(info).splitlines()
        if line.startswith(("model name", "CPU implementer"))
    )
    return LoadHost(
        cpu_model=next(names, ""),
        cpu_governor=", ".join(sorted(governors - {""})),
        cpu_count=os.cpu_count(),
        numa_nodes=_read(numa),
    )


async def read_engine_facts(target: Target) -> EngineFacts | None:
    """Return what the engine says of itself; None where it has no such page."""
    version = ""
    arguments: dict[str, str] = {}
    async with ChatServer(
        base_url=target.base_url,
        model_name=target.model_name,
        api_key=target.api_key,
        certificate=target.certificate,
    ) as server:
        for path in _VERSION_PATHS:
            version = version or _version_in(await server.document(path))
        for path in _ARGUMENT_PATHS:
            document = await server.document(path)
            arguments = arguments or dict(_scalars(document))
            version = version or _version_in(document)
            if version and arguments:
                break
    return EngineFacts(version=version, arguments=arguments) if version or arguments else None


def _version_in(document: Mapping[str, Any]) -> str:
    value = document.get("version") or document.get("build_info") or ""
    return value[:MAX_VALUE_CHARACTERS] if isinstance(value, str) else ""


def _scalars(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what is a single value and no secret, by its name; of nested objects too."""
    count = 0
    for name, value in _flat("", document):
        if value is None or any(word in name.lower() for word in _SECRETS):
            continue
        yield name, str(value)[:MAX_VALUE_CHARACTERS]
        count += 1
        if count == MAX_ARGUMENTS:
            return


def _flat(prefix: str, document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        if isinstance(value, dict) and not prefix:
            yield from _flat(f"{name}.", value)
        elif isinstance(value, str | int | float | bool):
            yield f"{prefix}{name}", value


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
