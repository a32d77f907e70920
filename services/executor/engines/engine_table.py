"""The engine table: what may run as an engine, as a process and in a container.

Nothing else is ever started. Its rows are made of the profiles in `shared/engines`.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from schemas.errors import ErrorCode
from services.executor.engines.engine import Engine, EngineCommand, command_of
from services.executor.engines.image import EngineImage, in_container
from shared.engines.profile import EngineProfile
from shared.engines.ranks import RankFlags
from shared.engines.requirements import find_missing
from shared.engines.table import PROFILES
from shared.errors import RefusedError
from shared.paths import SOURCE_ROOT, TOOLS_VARIABLE, tools_directory

SWITCHED_OFF: Final = "simulated engines are switched off on this node"


def _engine(profile: EngineProfile) -> Engine:
    """Build the engine as a process of this host."""
    launch, server = profile.launch, profile.server
    engine = Engine(
        name=profile.name,
        program=launch.program,
        missing=partial(find_missing, profile),
        owned=profile.owned,
        task_fields=profile.task_fields,
        loads_code=profile.loads_code,
        env=tuple(profile.env.items()),
        simulated=profile.simulated,
        rank_flags=profile.rank_flags,
    )
    if server is None:
        program = launch.program
        python = (sys.executable,) if program[0] == "python3" else program[:1]
        return replace(
            engine,
            program=(*python, *program[1:]),
            model_flag=launch.model_flag,
            name_flag=launch.name_flag,
            host_flag=launch.host_flag,
            port_flag=launch.port_flag,
            allow_list=profile.allow_list_name,
            has_negative_switches=launch.has_negative_switches,
            plain_switches=launch.plain_switches,
            has_underscores=launch.has_underscores,
        )
    certificates = () if server.needs_certificates else (("SSL_CERT_FILE", os.devnull),)
    return replace(
        engine,
        program=(sys.executable, "-m", server.module),
        name_flag="--alias",
        flags=server.flags,
        env=(
            *engine.env,
            ("PYTHONPATH", str(SOURCE_ROOT)),
            (TOOLS_VARIABLE, str(tools_directory())),
            *certificates,
        ),
        announces_address=True,
    )


def _image(profile: EngineProfile) -> EngineImage:
    """Build the engine in a container."""
    launch = profile.launch
    return EngineImage(
        engine=in_container(
            ENGINES[profile.name],
            program=launch.image_program,
            hub_flag=launch.hub_flag,
            tls_flags=launch.tls_flags,
            plain_switches=launch.plain_switches,
            allow_list=profile.allow_list_name,
            owned=profile.image_owned or profile.owned,
            env=tuple(profile.env.items()),
        ),
        entrypoint=launch.entrypoint,
        repository=launch.repository,
        tag=launch.tag,
        port=launch.port,
    )


ENGINES: Final[Mapping[str, Engine]] = {name: _engine(p) for name, p in PROFILES.items()}
IMAGES: Final[Mapping[str, EngineImage]] = {name: _image(p) for name, p in PROFILES.items()}


def engine_named(name: str, engines: Mapping[str, Engine] = ENGINES) -> Engine:
    """The engine of that name, case ignored. Raises RefusedError naming the known ones."""
    engine = engines.get(name.lower())
    if engine is None:
        engine_names = ", ".join(engines)
        raise RefusedError(
            ErrorCode.UNSUPPORTED,
            f"expected an engine of {engine_names}, got {name!r}",
            path="$.base_runtime",
        )
    return engine


def missing(name: str) -> str | None:
    """Return what to install before this host can run the engine, or None. Raises RefusedError."""
    return engine_named(name).missing()


def rank_flags(name: str) -> RankFlags:
    """The flags that give the engine its rank. Raises RefusedError for one that has none."""
    engine = ENGINES.get(name.lower())
    if engine is None or engine.rank_flags is None:
        raise RefusedError(
            ErrorCode.UNSUPPORTED,
            f"{name} serves on one node only: it knows no ranks",
            path="$.base_runtime",
        )
    return engine.rank_flags


def build_command(
    engine_name: str,
    model: str,
    parameters: Mapping[str, Any],
    *,
    port: int,
    host: str = "127.0.0.1",
    served_model_name: str | None = None,
    rank_parameters: Mapping[str, Any] | None = None,
    engines: Mapping[str, Engine] = ENGINES,
    variables: Mapping[str, str] | None = None,
) -> EngineCommand:
    """Build the command of an engine of the table as a process of this host; see `command_of`."""
    return command_of(
        engine_named(engine_name, engines),
        model,
        parameters,
        host=host,
        port=port,
        served_model_name=served_model_name,
        rank_parameters=rank_parameters,
        variables=variables,
    )
