"""The chart's values without helm: its schema takes what we ship, and its version is ours."""

import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from tests.support.kubernetes.chart import CHART, EXAMPLES
from tests.support.paths import ROOT

DEFAULTS = yaml.load((CHART / "values.yaml").read_text(), yaml.CSafeLoader)
SCHEMA = json.loads((CHART / "values.schema.json").read_text())


def merged(below: Any, above: Any) -> Any:
    """Return what helm makes of the chart's values and a user's."""
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return below | {name: merged(below.get(name), value) for name, value in above.items()}


def test_version_is_that_of_the_package() -> None:
    chart = yaml.load((CHART / "Chart.yaml").read_text(), yaml.CSafeLoader)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

    assert (chart["version"], chart["appVersion"]) == (version, version)


@pytest.mark.parametrize("path", [CHART / "values.yaml", *EXAMPLES.values()], ids=lambda p: p.stem)
def test_schema_takes_the_values_that_we_ship(path: Path) -> None:
    values = merged(DEFAULTS, yaml.load(path.read_text(), yaml.CSafeLoader))

    errors = jsonschema_rs.validator_for(SCHEMA).iter_errors(values)

    assert [error.message for error in errors] == []


def test_schema_describes_each_value_that_there_is() -> None:
    def check(values: dict[str, Any], schema: dict[str, Any], place: str) -> None:
        if "properties" not in schema:
            return
        assert schema["additionalProperties"] is False, place
        assert values.keys() == schema["properties"].keys() - {"global"}, place
        for name, value in values.items():
            if isinstance(value, dict):
                check(value, schema["properties"][name], f"{place}/{name}")

    check(DEFAULTS, SCHEMA, "")


def test_everything_changes_each_group_of_values() -> None:
    values = yaml.load(EXAMPLES["everything"].read_text(), yaml.CSafeLoader)

    unchanged = DEFAULTS.keys() - values.keys()

    assert unchanged == {"namespaces", "podDisruptionBudgets"}
