"""An engine is one folder: its name stands nowhere else in the product."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from shared.engines.table import PROFILES

ROOT: Final = Path(__file__).resolve().parents[2]
# Folders whose texts quote what engines write or publish, as evidence with its source.
QUOTING: Final = ("shared/failures/", "shared/accelerator_rules/", "shared/gpu/")
ALLOWED: Final = {
    ("services/cli/commands/tasks/new.py", "vllm"): "the default of `gpusteward new`",
    ("services/cli/doctor/software.py", "llamacpp"): "the engine of `gpusteward demo`",
    ("shared/engines/profile.py", "vllm"): "genai-bench's word for its own default",
}
NAMES: Final = frozenset(PROFILES) - {"simulated"}  # a word of every report
PREFIXES: Final = tuple(prefix for p in PROFILES.values() for prefix in p.variable_prefixes)


def code_strings(path: Path) -> Iterator[str]:
    """Yield the string constants of a module that are no docstrings."""
    tree = ast.parse(path.read_text())
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    docstrings = {id(statement.value) for statement in statements}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in docstrings:
            yield str(node.value)


@pytest.mark.parametrize("folder", ["schemas", "services", "shared"])
def test_engine_names_stand_in_their_folder(folder: str) -> None:
    strays = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        inside = re.match(r"shared/engines/\w+/", name) is not None
        if inside or "node_modules" in path.parts or name.startswith(QUOTING):
            continue
        strays += [
            f"{name}: {text!r}"
            for text in code_strings(path)
            if (text in NAMES or text.startswith(PREFIXES)) and (name, text) not in ALLOWED
        ]

    assert strays == []


def test_profile_is_named_as_its_folder() -> None:
    for name, profile in PROFILES.items():
        assert (ROOT / "shared/engines" / name / "profile.py").is_file()
        assert profile.name == name
