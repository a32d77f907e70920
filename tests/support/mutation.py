"""Do the unit tests notice a small error in a pure module? `make mutate ARGS="--seed 7"`.

Chooses places in the modules that decide on plain data (the contract of that name in
pyproject.toml), changes one at a time in a copy of the tree and runs the module's unit tests there.
A mutant that no test fails for has survived: a test is missing, the code is more than is needed, or
the change makes no difference. One whose tests do not end is caught, and said to be: that is told
by processor time, so that a busy machine makes none.
"""

import argparse
import ast
import copy
import math
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from tests.support.paths import ROOT

CONTRACT: Final = "domains decide on plain data"

# By the longest prefix: the tests that speak of a module.
TESTS: Final = {
    "services/cluster": ["tests/unit/cluster"],
    "services/executor": ["tests/unit/executor"],
    "services/gateway": ["tests/unit/gateway"],
    "services/orchestrator": ["tests/unit/orchestrator"],
    "services/results": ["tests/unit/results"],
    "services/scheduler": ["tests/unit/scheduler"],
    "services/telemetry": ["tests/unit/telemetry"],
    "shared/benchmarks": ["tests/unit/benchmarks"],
    "shared/failures": ["tests/unit/shared/failures", "tests/unit/executor"],
    "shared/gpu": [
        *("tests/unit/shared", "tests/unit/cluster", "tests/unit/orchestrator"),
        "tests/unit/results",
    ],
    "shared": ["tests/unit/shared"],
}

Operators = dict[type[ast.AST], tuple[type[ast.AST], ...]]

COMPARISONS: Final[Operators] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: Final[Operators] = {ast.Add: (ast.Sub,), ast.Sub: (ast.Add,)}
OTHER_EXTREME: Final = {"min": "max", "max": "min"}

# What a test may take by the clock says nothing of a mutant on a busy machine.
PYTEST: Final = (
    *(sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"),
    *("-m", "not long", "--timeout=0", "--hypothesis-profile=ci"),
)
NONE_COLLECTED: Final = 5  # its exit code, where all of a module's own tests are long ones

# What a mutant may take, however it loops, grows or waits.
MEMORY_BYTES: Final = 4 << 30
SPARE_CPU_SECONDS: Final = 20
LONGEST_SECONDS: Final = 1_800.0


class Ending(Enum):
    """Of the tests on a mutant; the value is what is printed."""

    PASSED = "SURVIVED"
    FAILED = "caught  "
    NONE = "caught, without an end"


@dataclass(frozen=True)
class Mutant:
    path: str
    line: int
    start: int
    """First byte of what is replaced, and `end` the one behind it."""
    end: int
    before: str
    after: str
    text: str
    """The line, which says where a `1 -> 0` stands."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}  {self.before}  ->  {self.after}  |  {self.text}"


@dataclass
class Sites(ast.NodeVisitor):
    """The places of one file where a mutation means something; several mutants at a place.

    Left out: annotations, decorators, `class` keywords, `__all__`, patterns, texts, imports for
    types, and `strict=`, which only asserts.
    """

    path: str
    source: bytes
    sites: list[list[Mutant]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lines = self.source.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def _add(self, node: ast.expr | ast.stmt, *changed: str) -> None:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._starts[node.lineno - 1] + node.col_offset
        end = self._starts[node.end_lineno - 1] + node.end_col_offset
        text = self._lines[node.lineno - 1].decode().strip()
        before = ast.unparse(node)
        self.sites.append(
            [Mutant(self.path, node.lineno, start, end, before, one, text) for one in changed]
        )

    def visit_Compare(self, node: ast.Compare) -> None:
        for index, operator in enumerate(node.ops):
            made = []
            for other in COMPARISONS[type(operator)]:
                changed = copy.deepcopy(node)
                changed.ops[index] = other()  # type: ignore[call-overload]  # from the table above
                made.append(f"({ast.unparse(changed)})")
            self._add(node, *made)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        changed = copy.deepcopy(node)
        changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._add(node, f"({ast.unparse(changed)})")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._add(node, f"({ast.unparse(node.operand)})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in ARITHMETIC and not any(map(_is_text, (node.left, node.right))):
            changed = copy.deepcopy(node)
            changed.op = ARITHMETIC[type(node.op)][0]()  # type: ignore[assignment]  # from the table
            self._add(node, f"({ast.unparse(changed)})")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if type(node.op) in ARITHMETIC and not _is_text(node.value):
            changed = copy.deepcopy(node)
            changed.op = ARITHMETIC[type(node.op)][0]()  # type: ignore[assignment]  # from the table
            self._add(node, ast.unparse(changed))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add(node, str(not node.value))
        elif isinstance(node.value, int | float) and node.value in {0, 1}:
            self._add(node, repr(type(node.value)(1 - node.value)))

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and (other := OTHER_EXTREME.get(node.func.id)):
            changed = copy.deepcopy(node)
            changed.func = ast.Name(other)
            self._add(node, ast.unparse(changed))
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":
            self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        for statement in node.body:
            self.visit(statement)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        if ast.unparse(node.targets[0]) != "__all__":
            self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) != "TYPE_CHECKING":
            self.generic_visit(node)

    def visit_MatchValue(self, node: ast.MatchValue) -> None:
        """A pattern."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """A text; before Python 3.12 what is in it has no position either."""


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def pure_modules() -> list[str]:
    """The files of the modules that the contract names."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = (one for one in contracts["contracts"] if one["name"].startswith(CONTRACT))
    found: set[Path] = set()
    for module in contract["source_modules"]:
        pattern = module.replace(".", "/")
        found |= {*ROOT.glob(f"{pattern}.py"), *ROOT.glob(f"{pattern}/**/*.py")}
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def sites_of(path: str) -> list[list[Mutant]]:
    source = (ROOT / path).read_bytes()
    sites = Sites(path, source)
    sites.visit(ast.parse(source))
    return sites.sites


def tests_of(path: str) -> list[str]:
    return TESTS[max((one for one in TESTS if path.startswith(f"{one}/")), key=len)]


def chosen(seed: int, most: int, only: Sequence[str]) -> list[Mutant]:
    """`only` names folders, files or lines (`file.py:12`). One mutant of each chosen place."""
    generator = random.Random(seed)
    places = [
        site
        for path in pure_modules()
        for site in sites_of(path)
        if not only or any(_is_within(site[0], one) for one in only)
    ]
    picked = generator.sample(places, min(most, len(places)))
    return [generator.choice(site) for site in picked]


def _is_within(mutant: Mutant, named: str) -> bool:
    path, _, line = named.removeprefix("./").rstrip("/").partition(":")
    inside = mutant.path == path or mutant.path.startswith(f"{path}/")
    return inside and (not line or int(line) == mutant.line)


@dataclass(frozen=True)
class Copy:
    """A copy of the working tree, in which one mutant at a time is tested."""

    root: Path
    times: Iterator[int] = field(default_factory=lambda: count(int(time.time())))

    @classmethod
    def made_in(cls, root: Path) -> "Copy":
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard", "-z"],
            cwd=ROOT,
            capture_output=True,
            check=True,
            text=True,
        )
        for name in filter(None, listed.stdout.split("\0")):
            if (ROOT / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, root / name)
        return cls(root)

    @property
    def output(self) -> Path:
        """What the last run of tests printed."""
        return self.root.with_suffix(".output")

    def nearest_tests_of(self, path: str) -> list[str]:
        """Those of the tests that name the module; most mutants fail in them."""
        named = re.compile(rf"\b{re.escape(path.removesuffix('.py').replace('/', '.'))}\b")
        return [
            found.relative_to(self.root).as_posix()
            for folder in tests_of(path)
            for found in sorted((self.root / folder).glob("**/test_*.py"))
            if named.search(found.read_text())
        ]

    def tested(self, tests: Sequence[str], cpu_seconds: int) -> Ending:
        """`cpu_seconds` are for the process of the tests; what they start has as much each."""
        with self.output.open("wb") as output:
            process = subprocess.Popen(
                [*PYTEST, *tests],
                cwd=self.root,
                env={
                    **os.environ,
                    "PYTHONPATH": str(self.root),
                    "PYTHONDONTWRITEBYTECODE": "",  # what is not mutated is compiled once
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        resource.prlimit(process.pid, resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.prlimit(process.pid, resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 10))
        try:
            status = process.wait(LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            return Ending.NONE
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if status in {-signal.SIGXCPU, -signal.SIGKILL}:
            return Ending.NONE
        return Ending.PASSED if status in {0, NONE_COLLECTED} else Ending.FAILED

    def tested_mutated(self, mutant: Mutant, cpu_seconds: int) -> Ending:
        """By the tests that name its module, and if these pass by all."""
        path = self.root / mutant.path
        source = path.read_bytes()
        changed = source[: mutant.start] + mutant.after.encode() + source[mutant.end :]
        nearest = self.nearest_tests_of(mutant.path)
        try:
            self._write(path, changed)
            if nearest and (ending := self.tested(nearest, cpu_seconds)) is not Ending.PASSED:
                return ending
            return self.tested(tests_of(mutant.path), cpu_seconds)
        finally:
            self._write(path, source)

    def _write(self, path: Path, source: bytes) -> None:
        """With a time of its own: by size and second alone a stale compiled file would be taken."""
        path.write_bytes(source)
        moment = next(self.times)
        os.utime(path, (moment, moment))


def run(mutants: Sequence[Mutant], jobs: int) -> list[Mutant]:
    """Those that survive, in the order they were chosen in."""
    with tempfile.TemporaryDirectory(prefix="gpusteward-mutation-") as directory:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(jobs):
            root = Path(directory) / str(number)
            root.mkdir()
            copies.put(Copy.made_in(root))
        cpu_seconds = _cpu_seconds_unchanged(copies, mutants)

        def survives(mutant: Mutant) -> bool:
            tree = copies.get()
            try:
                allowed = 3 * cpu_seconds[tuple(tests_of(mutant.path))] + SPARE_CPU_SECONDS
                ending = tree.tested_mutated(mutant, allowed)
            finally:
                copies.put(tree)
            print(ending.value, mutant, flush=True)
            return ending is Ending.PASSED

        with ThreadPoolExecutor(jobs) as pool:
            verdicts = list(pool.map(survives, mutants))
    return [mutant for mutant, survived in zip(mutants, verdicts, strict=True) if survived]


def _cpu_seconds_unchanged(
    copies: "SimpleQueue[Copy]", mutants: Sequence[Mutant]
) -> dict[tuple[str, ...], int]:
    """What the tests take as the tree is."""
    tree = copies.get()
    taken = {}
    for tests in sorted({tuple(tests_of(mutant.path)) for mutant in mutants}):
        before = _cpu_seconds()
        if tree.tested(tests, int(LONGEST_SECONDS)) is not Ending.PASSED:
            sys.exit(
                f"{tree.output.read_text(errors='replace')[-3000:]}\n"
                f"{' '.join(tests)}: fails as it is, which would catch every mutant"
            )
        taken[tests] = math.ceil(_cpu_seconds() - before)
    copies.put(tree)
    return taken


def _cpu_seconds() -> float:
    """Of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.mutation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100, help="as many places, chosen at random")
    parser.add_argument("--only", nargs="+", default=[], metavar="PATH[:LINE]")
    parser.add_argument("--jobs", type=int, choices=(1, 2), default=2)
    parser.add_argument("--list", action="store_true", help="name the mutants, run nothing")
    asked = parser.parse_args()

    mutants = chosen(asked.seed, asked.count, asked.only)
    if asked.list:
        print(*mutants, sep="\n")
        return
    survivors = run(mutants, asked.jobs)
    caught = len(mutants) - len(survivors)
    share = caught / max(1, len(mutants))
    print(f"\nseed {asked.seed}: {caught} of {len(mutants)} caught ({share:.0%})")
    if survivors:
        print("survived:", *survivors, sep="\n  ")


if __name__ == "__main__":
    main()
