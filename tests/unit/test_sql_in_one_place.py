"""Every SQL statement of orchestrator and scheduler is a constant of a module in `ledger/`."""

import ast
import re
from pathlib import Path

from services import scheduler
from tests.support.tables import for_each

SERVICES = Path(scheduler.__file__).parents[1]
SQL = re.compile(r"^\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH|SET|LISTEN|NOTIFY)\s[\w*]")
MODULES = sorted(
    path.relative_to(SERVICES).as_posix()
    for service in ("orchestrator", "scheduler")
    for path in (SERVICES / service).rglob("*.py")
)


def statements(tree: ast.AST) -> set[int]:
    """The lines of string literals that begin as SQL does, docstrings left out."""
    return {
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and SQL.match(node.value)
        and node.value.strip() == node.value.strip().rstrip(".")
    }


@for_each("module", MODULES)
def test_sql_is_a_constant_of_the_ledger(module: str) -> None:
    tree = ast.parse((SERVICES / module).read_text())
    constants = [
        node
        for node in tree.body
        if "/ledger/" in module and isinstance(node, ast.AnnAssign | ast.Assign)
    ]

    inside = set().union(*(statements(constant) for constant in constants), set())

    assert statements(tree) - inside == set()
