"""Names and docstrings read like plain English: what breaks the rule may only become less."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]


def words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


# A docstring opens with a verb or with a noun phrase for what is returned, never with one of these.
FRAGMENTS: Final = words(
    """
    all also as at by each every everything for from how in its none nothing of one once that those
    until what when where whether who whom whose why with without
    """
)
# A variable is a noun.
NOUNLESS: Final = words(
    """
    after again alike asked because before began begun chosen each foreseen found given held known
    lacking late left meant named one others ours own rest said same seen shown some such taken
    theirs there these those told tried usual wanted whole
    """
)
# A function is a verb.
PARTICIPLES: Final = words(
    """
    alike begun drawn found given held kept known left said seen sent shown spelled taken told worth
    written
    """
)
VERBS_IN_ED: Final = words("bed embed exceed feed heed need proceed read seed shed speed spread")
RULES: Final = ("docstrings", "names", "functions")
# Per package: how many docstrings, names and functions break their rule. The numbers may only fall.
LIMITS: Final = {
    "schemas": (0, 11, 0),
    "shared": (0, 2, 9),
    "services/cli": (0, 3, 2),
    "services/cluster": (0, 0, 0),
    "services/executor": (1, 0, 0),
    "services/gateway": (2, 3, 0),
    "services/orchestrator": (0, 0, 0),
    "services/results": (0, 0, 0),
    "services/scheduler": (0, 0, 8),
    "services/telemetry": (0, 0, 1),
}
MAX_TEST_NAME: Final = 60
# By its line: to parse all tests takes three seconds.
DEFINED_TEST: Final = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)


def find_strays(package: str) -> dict[str, list[str]]:
    """Return what breaks a rule in a package, by rule and with its place."""
    strays: dict[str, list[str]] = {rule: [] for rule in RULES}
    for path in sorted((ROOT / package).rglob("*.py")):
        if "node_modules" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            for rule, name in broken_rules(node):
                line = getattr(node, "lineno", 0)
                strays[rule].append(f"{path.relative_to(ROOT)}:{line} {name}")
    return strays


def broken_rules(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield each rule that a node of the syntax tree breaks, with its name."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            words = (ast.get_docstring(node) or "-").split()
            if words[0].strip(".,:;`").lower() in FRAGMENTS:
                yield "docstrings", name
            if is_named_by_participle(node):
                yield "functions", name
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            if name.strip("_") in NOUNLESS:
                yield "names", name


def is_named_by_participle(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return True for a function, other than a property, whose first word is a participle."""
    if any("property" in ast.unparse(decorator) for decorator in function.decorator_list):
        return False
    word = function.name.strip("_").split("_")[0]
    return word in PARTICIPLES or (word.endswith("ed") and word not in VERBS_IN_ED)


@pytest.mark.parametrize("package", LIMITS)
def test_words_that_break_a_rule_only_fall(package: str) -> None:
    strays = find_strays(package)

    too_many = {
        rule: strays[rule]
        for rule, limit in zip(RULES, LIMITS[package], strict=True)
        if len(strays[rule]) > limit
    }
    assert too_many == {}


def test_every_package_has_a_limit() -> None:
    folders = {f"services/{path.parent.name}" for path in ROOT.glob("services/*/__init__.py")}

    assert LIMITS.keys() == {"schemas", "shared", *folders}


def test_names_of_tests_are_short() -> None:
    long_names = [
        f"{path.relative_to(ROOT)} {name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for name in DEFINED_TEST.findall(path.read_text())
        if len(name) > MAX_TEST_NAME
    ]

    assert long_names == []
