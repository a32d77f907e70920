"""The rules of the services that the web page applies in the browser, as TypeScript."""

import json
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from schemas.task.task_file import OptimizationSpec
from services.executor.engines.engine_table import ENGINES
from shared.engines.launch import EngineLaunch
from shared.engines.table import LAUNCHES

HEADER: Final = """\
// Written by `make docs` from the rules of the services; not to be edited.
/* eslint-disable lingui/no-unlocalized-strings -- programs are in no language */

/** How people start an engine; a switch that is off has a `--no-` form, unless it is plain. */
export interface EngineLaunch {
  program: readonly string[];
  modelFlag: string | null;
  hubFlag: string | null;
  hasNegativeSwitches: boolean;
  hasUnderscores: boolean;
  plainSwitches: readonly string[];
}
"""


def page_rules() -> str:
    """Return the module `rules.generated.ts` of the page."""
    launches = {name: _launch(launch) for name, launch in sorted(LAUNCHES.items())}
    parts = [
        HEADER,
        f"export const ENGINES: readonly string[] = {_list(sorted(ENGINES))};\n",
        f"export const LAUNCHES: Partial<Record<string, EngineLaunch>> = {_json(launches)};\n",
        f"export const MAX_OBJECTIVES = {_max_objectives()};\n",
    ]
    return "\n".join(parts)


def _launch(launch: EngineLaunch) -> dict[str, Any]:
    return {
        "program": launch.program,
        "modelFlag": launch.model_flag,
        "hubFlag": launch.hub_flag,
        "hasNegativeSwitches": launch.has_negative_switches,
        "plainSwitches": sorted(launch.plain_switches),
        "hasUnderscores": launch.has_underscores,
    }


def _max_objectives() -> int:
    schema = msgspec.json.schema(OptimizationSpec)["$defs"]["OptimizationSpec"]
    return int(schema["properties"]["objectives"]["maxItems"])


def _list(values: Iterable[str]) -> str:
    return json.dumps(list(values))


def _json(value: object) -> str:
    return json.dumps(value, indent=2)
