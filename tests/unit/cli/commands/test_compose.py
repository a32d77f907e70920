"""What `compose init` makes, and what the files of compose/ promise."""

import json
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from schemas.base import node_speaker
from services.cli.commands.platform.compose import compose
from services.cli.failures import CommandFailed
from services.cli.local_platform.compose import COMPOSE_FILE, TEMPLATES, ComposeDirectory
from services.cluster.settings import ClusterSettings
from services.executor.settings import ExecutorSettings
from shared.local_platform.bus_users import Credentials
from shared.messaging.user_names import SERVICES
from shared.settings import load_settings

VARIABLE = re.compile(r"\$\{(\w+)\}")
STACKS = ("compose.yaml", "node.yaml")
every_stack = pytest.mark.parametrize("stack", STACKS)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(compose, arguments, catch_exceptions=False)


def services_of(stack: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((TEMPLATES / stack).read_text())
    return dict(content["services"])


def content_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*.*")}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    root = tmp_path / "steward"
    run("init", str(root), "--node-id", "alpha")
    return root


def test_all_that_is_made_is_readable_by_one_user_whom_the_containers_run_as(
    directory: Path,
) -> None:
    environment = ComposeDirectory(directory).environment

    for path in (directory, *directory.rglob("*")):
        found = path.stat()
        assert stat.S_IMODE(found.st_mode) == (0o700 if path.is_dir() else 0o600), path
        if path.name != ".lock":
            assert str(found.st_uid) == environment["STEWARD_UID"], path
            assert str(found.st_gid) == environment["STEWARD_GID"], path
    assert environment["STEWARD_UID"] != "0"


def test_a_second_call_changes_nothing_and_says_what_is_there(directory: Path) -> None:
    before = content_of(directory)
    (directory / COMPOSE_FILE).write_text("changed")

    again = run("init", str(directory), "--node-id", "other")

    assert content_of(directory) == {**before, COMPOSE_FILE: b"changed"}
    assert "kept 20 files" in again.output
    assert "compose.yaml is not this version's" in again.output
    assert "made" not in again.output


def test_no_credential_is_printed(tmp_path: Path) -> None:
    printed = run("init", str(tmp_path / "steward")).output

    made = ComposeDirectory(tmp_path / "steward")
    secrets = [(made.root / name).read_text() for name in ("admin_token", "postgres/password")]
    secrets += [made.users.read(name).password for name in SERVICES]
    assert [each for each in secrets if each in printed] == []


@every_stack
def test_every_file_and_variable_that_a_stack_names_is_made(stack: str, directory: Path) -> None:
    made = ComposeDirectory(directory)
    if stack == "node.yaml":
        run("add-node", "beta", "--nats", "nats://10.0.0.1:4222", "--directory", str(directory))
        made = ComposeDirectory(directory / "nodes" / "beta")
    environment = made.environment

    text = VARIABLE.sub(lambda name: environment[name[1]], (made.root / COMPOSE_FILE).read_text())
    content = yaml.safe_load(text)
    used = {name for each in content["services"].values() for name in each.get("secrets", ())}

    assert used == set(content["secrets"])
    for secret in content["secrets"].values():
        assert (made.root / secret["file"]).is_file(), secret
    binds = [
        volume.split(":")[0]
        for each in content["services"].values()
        for volume in each.get("volumes", ())
    ]
    for bind in binds:
        assert bind in content["volumes"] or bind.startswith("/") or (made.root / bind).exists()


@every_stack
def test_containers_run_with_as_little_as_they_need(stack: str) -> None:
    for name, each in services_of(stack).items():
        assert each["cap_drop"] == ["ALL"], name
        assert each["read_only"] is True, name
        assert each["security_opt"] == ["no-new-privileges:true"], name
        assert "privileged" not in each, name
        assert each["image"].startswith("${"), name
        if name != "volumes":
            assert each["user"] == "${STEWARD_UID}:${STEWARD_GID}", name
            assert each["restart"] == "unless-stopped", name
            assert "cap_add" not in each, name


def test_only_the_gateway_and_the_bus_are_published_and_on_loopback(directory: Path) -> None:
    published = {
        name: each["ports"] for name, each in services_of(STACKS[0]).items() if "ports" in each
    }

    assert published == {
        "nats": ["${STEWARD_NATS_ADDRESS}:${STEWARD_NATS_PORT}:4222"],
        "gateway": ["${STEWARD_API_ADDRESS}:${STEWARD_API_PORT}:8470"],
    }
    environment = ComposeDirectory(directory).environment
    assert environment["STEWARD_NATS_ADDRESS"] == "127.0.0.1"
    assert environment["STEWARD_API_ADDRESS"] == "127.0.0.1"


@every_stack
def test_no_password_is_in_the_environment_of_a_container(stack: str) -> None:
    for name, each in services_of(stack).items():
        for variable, value in each.get("environment", {}).items():
            if variable.endswith("_DSN"):
                assert re.fullmatch(r"postgresql://gpusteward_[a-z]+@postgres/gpusteward", value)
            assert not re.search(r"(?i)password(?!_file)|token(?!s_file)", variable), (
                name,
                variable,
            )


def test_each_login_that_postgres_makes_is_the_one_its_service_uses(directory: Path) -> None:
    roles = (directory / "postgres/init/roles.sql").read_text()

    for service in SERVICES:
        host, port, database, role, password = (
            (directory / f"postgres/{service}.pgpass").read_text().strip().split(":")
        )
        assert (host, port, database, role) == (
            "postgres",
            "5432",
            "gpusteward",
            f"gpusteward_{service}",
        )
        assert f"ALTER ROLE {role} LOGIN PASSWORD '{password}';" in roles


def test_a_further_node_gets_its_own_credential_and_nothing_else_of_the_platform(
    directory: Path,
) -> None:
    printed = run(
        "add-node", "beta", "--nats", "nats://10.0.0.1:4222", "--directory", str(directory)
    )

    node = directory / "nodes" / "beta"
    users = ComposeDirectory(directory).users
    assert sorted(path.name for path in node.iterdir()) == [".env", COMPOSE_FILE, "node_beta.json"]
    assert (node / "node_beta.json").read_bytes() == users.path_of("node_beta").read_bytes()
    assert isinstance(users.read("node_beta"), Credentials)
    assert '"user":"node_beta"' in users.configuration_path.read_text()
    environment, platform = (
        ComposeDirectory(node).environment,
        ComposeDirectory(directory).environment,
    )
    assert environment["STEWARD_NATS_URL"] == "nats://10.0.0.1:4222"
    assert environment["STEWARD_INSTALLATION_ID"] != platform["STEWARD_INSTALLATION_ID"]
    assert "gpusteward node admit beta" in printed.output


def test_prometheus_is_told_where_a_further_node_s_metrics_are(directory: Path) -> None:
    beta = ("add-node", "beta", "--nats", "nats://10.0.0.1:4222", "--directory", str(directory))

    run(*beta, "--metrics", "fd00::7")
    refused = run(*beta, "--metrics", "not an address")

    [group] = json.loads((directory / "prometheus" / "beta.json").read_text())
    node = directory / "nodes" / "beta"
    assert group == {"targets": ["[fd00::7]:9400"], "labels": {"node": "beta"}}
    assert ComposeDirectory(node).environment["STEWARD_METRICS_ADDRESS"] == "fd00::7"
    telemetry = services_of("node.yaml")["telemetry"]["environment"]
    assert telemetry["GPUSTEWARD_TELEMETRY_METRICS_HOST"] == "${STEWARD_METRICS_ADDRESS}"
    assert refused.exit_code == 2


def test_a_cluster_s_services_speak_for_it_with_a_credential_of_its_own(directory: Path) -> None:
    made = ComposeDirectory(directory)
    services = {name: services_of(STACKS[0])[name] for name in ("cluster", "cluster-executor")}

    assert made.users.path_of(node_speaker(made.environment["STEWARD_CLUSTER_ID"])).is_file()
    for each in services.values():
        assert each["profiles"] == ["cluster"]
        assert each["secrets"] == ["cluster_nats"]
        assert each["environment"]["GPUSTEWARD_NODE_ID"] == "${STEWARD_CLUSTER_ID}"
    executor = environment_of(services["cluster-executor"], made.environment)
    cluster = environment_of(services["cluster"], made.environment)
    assert load_settings(ExecutorSettings, "executor", executor).cluster
    assert load_settings(ClusterSettings, "cluster", cluster).node_id == "cluster"


def environment_of(service: dict[str, Any], variables: Mapping[str, str]) -> dict[str, str]:
    return {
        name: VARIABLE.sub(lambda found: variables[found[1]], value)
        for name, value in service["environment"].items()
    }


def test_what_cannot_be_made_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("mine")

    with pytest.raises(CommandFailed, match="to be new, empty, or made by this command before"):
        run("init", str(tmp_path))
    with pytest.raises(CommandFailed, match=r"has no \.env; `gpusteward compose init` makes one"):
        run("add-node", "beta", "--nats", "nats://h:1", "--directory", str(tmp_path))
    assert run("add-node", "be ta", "--nats", "nats://h:1").exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]
