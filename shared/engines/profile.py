"""What GPU Steward knows of an engine, as data: one folder of this package has one profile."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from schemas.executor.engine_rules import TaskField
from shared.engines.allow_list import AllowList
from shared.engines.conflicts import FindConflicts
from shared.engines.flag_note import FlagNote
from shared.engines.flags import Flag
from shared.engines.launch import EngineLaunch
from shared.engines.metrics import MetricNames
from shared.engines.ranks import RankFlags
from shared.engines.request_log import LogReaderMaker
from shared.known_failure import Known

DEFAULT_BACKEND: Final = (
    "vllm"  # of genai-bench; it keeps `ignore_eos`, so answers have their length
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """What a host needs to run the engine as a process: a program on PATH, or a Python module."""

    install: str
    program: str | None = None
    module: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnServer:
    """A server of this repository that is the engine as a process.

    `flags` are all that a task may give it. With `needs_certificates` it may call HTTPS servers.
    """

    module: str
    flags: tuple[Flag, ...]
    needs_certificates: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StarterTask:
    """What `gpusteward new` writes: a model, and flags as YAML with what each does.

    `is_small`: the engine is tried on a desk, by a small load for minutes.
    """

    model: str
    parameters: str
    is_small: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StateReset:
    """How a running engine forgets what it was asked: a POST to `path`, or, with a `list_path`, to
    `path` for each `{id}` that is listed there.

    It is there where the engine was started with the variable `needs_variable` set to 1, and with
    `of_own_server` in a process alone, which is a server of ours.
    """

    path: str
    list_path: str = ""
    needs_variable: str = ""
    of_own_server: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProfile:
    """One engine.

    `title` is the name that its makers use. `launch` is how a person starts it, and its image;
    `server` is set where the process is one of ours instead. `requirement` None: nothing is needed.

    `owned` are parameters that only the executor sets, `image_owned` those that it also sets in a
    container; `loads_code` those by which a task would have the engine import or download code.
    `task_fields` say how fields of a task's `quant_config` and `parallel_config` are written.
    `rank_flags` make it one of several ranks on as many nodes; None: it serves on one node only.
    `allow_list` is what a task may give the engine itself. `env` is added to its environment.

    `metrics` are its names in `/metrics`. `cache_variables` name directories of compiled kernels,
    with the folder for each, `model_variables` those of downloaded models beside Hugging Face's;
    variables of its own begin with one of `variable_prefixes`. `task_variables` are patterns of
    those that a task may set where the operator names none: they open no file and name no code.
    `failures` are texts that only this engine writes. `runtime_pattern` recognises it in the image
    or command of a ServingRuntime. `presets` are parameters with values, by aim. `flag_notes`
    explain the flags that people tune most, `find_conflicts` those that do not go together.
    `backend` is what genai-bench calls its dialect.
    `request_log` reads requests out of what it logs. Without a `state_reset` it is started anew.
    `is_predicted`: AIConfigurator knows it, by this name.
    """

    name: str
    title: str
    launch: EngineLaunch
    server: OwnServer | None = None
    requirement: Requirement | None = None
    owned: frozenset[str] = frozenset()
    image_owned: frozenset[str] = frozenset()
    loads_code: frozenset[str] = frozenset()
    task_fields: Mapping[str, TaskField] = field(default_factory=dict)
    rank_flags: RankFlags | None = None
    allow_list: AllowList | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    simulated: bool = False
    metrics: MetricNames | None = None
    cache_variables: Mapping[str, str] = field(default_factory=dict)
    model_variables: Mapping[str, str] = field(default_factory=dict)
    variable_prefixes: tuple[str, ...] = ()
    task_variables: tuple[str, ...] = ()
    failures: tuple[Known, ...] = ()
    runtime_pattern: re.Pattern[str] | None = None
    presets: Mapping[str, Mapping[str, list[Any]]] = field(default_factory=dict)
    flag_notes: Mapping[str, FlagNote] = field(default_factory=dict)
    find_conflicts: FindConflicts | None = None
    starter: StarterTask
    backend: str = DEFAULT_BACKEND
    request_log: LogReaderMaker | None = None
    state_reset: StateReset | None = None
    is_predicted: bool = False

    @property
    def allow_list_name(self) -> str:
        """The name of the list, as rules of executors have it; empty without one."""
        return self.allow_list.name if self.allow_list is not None else ""
