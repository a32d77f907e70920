"""What the layout promises: who may import whom, how a service is built, how long a file may be."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("schemas", "shared", "services")
SERVICES = (
    "cli",
    "cluster",
    "executor",
    "gateway",
    "orchestrator",
    "results",
    "scheduler",
    "telemetry",
)
BUS_SERVICES = tuple(name for name in SERVICES if name != "cli")
MAX_FILE_LINES = 400

# Things that connect, or that gather handlers: made by `create_service`, so that two of them can
# live in one process.
MADE_BY_A_FACTORY = frozenset(
    {
        "AsgiFastStream",
        "Bus",
        "Database",
        "FastStream",
        "Litestar",
        "NatsBroker",
        "NatsRouter",
        "Router",
        "Service",
    }
)

# Who reads the process's environment, and why it is not a setting of a service.
ENVIRONMENT_READERS = {
    "schemas/examples/reserve_gpu.py": "a program of its own",
    "services/cli": "a program for people: where it runs decides what it does",
    "shared/engines/simulated/behaviour.py": "as engines find their caches",
    "services/executor/guard/client.py": "a guard gets nothing of what its executor has but PATH",
    "services/executor/runtimes/engine_process.py": "an engine inherits what its executor has",
    "services/telemetry/sources/nvml/source.py": "the probe's process inherits what its agent has",
    "shared/benchmarks/aiconfigurator": "its tool inherits nothing but where it runs",
    "shared/benchmarks/aiperf": "its tool inherits little of what its caller has",
    "shared/benchmarks/genai_bench": "finds its tool, which inherits what its caller has",
    "shared/benchmarks/tools/environment.py": "finds the tools that the user means",
    "shared/client/discovery.py": "finds the platform that the user means",
    "shared/kubernetes/access.py": "finds the cluster as kubectl does",
    "shared/lifecycle.py": "the supervisor tells where to say that a service is ready",
    "shared/paths.py": "the XDG directories",
    "shared/local_platform/backup/restore.py": "a service inherits what its caller has",
    "shared/local_platform/platform.py": "a service inherits what its supervisor has",
    "shared/local_platform/supervisor/launcher_process.py": "a fork gets what a service is given",
    "shared/services_process.py": "each of its services reads what it alone is given",
    "shared/settings.py": "the settings",
    "shared/skip_optional_imports.py": "decides what is imported before there are settings",
}


def modules(*packages: str) -> Iterator[Path]:
    for package in packages:
        yield from sorted((ROOT / package).rglob("*.py"))


def trees(*naming: str) -> Iterator[tuple[Path, ast.Module]]:
    """Modules in whose text any of these words stands; parsing all of them takes seconds."""
    for path in modules(*PACKAGES):
        text = path.read_text()
        if any(word in text for word in naming):
            yield path, ast.parse(text)


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def called(node: ast.expr | None) -> str | None:
    """The last name of what is called, if this is a call."""
    if not isinstance(node, ast.Call):
        return None
    match node.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return None


def test_packages_import_by_their_contracts() -> None:
    lint_imports = Path(sys.executable).parent / "lint-imports"

    result = subprocess.run(
        [lint_imports, "--no-logo"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert result.returncode == 0, result.stdout + result.stderr


def test_the_services_are_those_of_the_design() -> None:
    found = {path.parent.name for path in (ROOT / "services").glob("*/__init__.py")}

    assert found == set(SERVICES)


@pytest.mark.parametrize("service", SERVICES)
def test_service_has_a_docstring_and_a_module(service: str) -> None:
    package = ROOT / "services" / service

    assert ast.get_docstring(ast.parse((package / "__init__.py").read_text()))
    assert (package / "__main__.py").is_file()


@pytest.mark.parametrize("service", BUS_SERVICES)
def test_service_has_one_factory_without_arguments(service: str) -> None:
    tree = ast.parse((ROOT / "services" / service / "app.py").read_text())

    factories = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == "create_service"
    ]

    assert len(factories) == 1
    arguments = factories[0].args
    assert len(arguments.defaults) == len(arguments.args)
    assert None not in arguments.kw_defaults


def test_imports_make_nothing_that_connects() -> None:
    made = [
        f"{relative(path)}:{node.lineno} makes a {called(node.value)}"
        for path, tree in trees(*MADE_BY_A_FACTORY)
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and called(node.value) in MADE_BY_A_FACTORY
    ]

    assert made == []


def test_environment_is_read_in_settings_only() -> None:
    environment = ("environ", "environb", "getenv")

    readers = {
        relative(path)
        for path, tree in trees(*environment)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in environment
        if isinstance(node.value, ast.Name) and node.value.id == "os"
    }

    allowed = {
        reader
        for reader in readers
        for place in ENVIRONMENT_READERS
        if reader == place or reader.startswith(f"{place}/")
    }
    assert readers - allowed == set()


def test_no_wait_may_lose_a_cancellation() -> None:
    """`asyncio.wait_for` of Python 3.11 loses one that comes together with its result,
    `asyncio.timeout` one that was pending when it was entered.
    """
    lossy = [
        f"{relative(path)}:{node.lineno}"
        for path, tree in trees("wait_for", "timeout")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in {"wait_for", "timeout", "timeout_at"}
        if ast.unparse(node.value) == "asyncio"
    ]

    assert [each for each in lossy if not each.startswith("shared/waiting.py:")] == [], (
        "expected shared.waiting.within or shared.waiting.wait_for"
    )


def test_files_have_at_most_400_lines() -> None:
    lengths = {relative(path): len(path.read_text().splitlines()) for path in modules(*PACKAGES)}

    assert {name: n for name, n in lengths.items() if n > MAX_FILE_LINES} == {}


def test_no_module_is_named_for_nothing() -> None:
    empty_names = {"base_service", "helpers", "manager", "misc", "util", "utils"}

    assert [relative(path) for path in modules(*PACKAGES) if path.stem in empty_names] == []
