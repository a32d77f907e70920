"""In the scheduler's domain each field is written by its own object alone."""

import ast
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]


def test_fields_are_written_by_their_object() -> None:
    foreign_writes = [
        f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}"
        for path in sorted((ROOT / "services/scheduler/domain").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del)
        if not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"})
    ]

    assert foreign_writes == []
