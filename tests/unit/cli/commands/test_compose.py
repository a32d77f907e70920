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
from services.gateway.settings import GatewaySettings
from services.orchestrator.settings import OrchestratorSettings
from services.results.settings import ResultsSettings
from services.scheduler.settings import SchedulerSettings
from services.telemetry.settings import TelemetrySettings
from shared.clock import utcnow
from shared.local_platform.bus_users import Credentials
from shared.messaging.user_names import SERVICES
from shared.settings import CommonSettings, load_settings
from shared.tls.authority import LEAF_LIFE, Authority

VERIFIED = "?sslmode=verify-full&sslrootcert=/etc/gpusteward/trust/ca.pem"
SETTINGS: dict[str, type[CommonSettings]] = {
    "scheduler": SchedulerSettings,
    "orchestrator": OrchestratorSettings,
    "results": ResultsSettings,
    "gateway": GatewaySettings,
    "telemetry": TelemetrySettings,
    "executor": ExecutorSettings,
    "cluster": ClusterSettings,
}
SERVERS = "nats://10.0.0.1:4222,nats://10.0.0.2:4222"
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


def test_files_are_private_to_container_user(
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


def test_second_call_changes_nothing_and_says_so(directory: Path) -> None:
    before = content_of(directory)
    (directory / COMPOSE_FILE).write_text("changed")

    again = run("init", str(directory), "--node-id", "other")

    assert content_of(directory) == {**before, COMPOSE_FILE: b"changed"}
    assert "kept 28 files" in again.output
    assert "compose.yaml is not this version's" in again.output
    assert "made" not in again.output


def test_no_credential_is_printed(tmp_path: Path) -> None:
    printed = run("init", str(tmp_path / "steward")).output

    made = ComposeDirectory(tmp_path / "steward")
    secrets = [(made.root / name).read_text() for name in ("admin_token", "postgres/password")]
    secrets += [made.users.read(name).password for name in SERVICES]
    assert [each for each in secrets if each in printed] == []


@every_stack
def test_every_file_and_variable_of_stack_is_made(stack: str, directory: Path) -> None:
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
def test_containers_have_least_privileges(stack: str) -> None:
    for name, each in services_of(stack).items():
        assert each["cap_drop"] == ["ALL"], name
        assert each["read_only"] is True, name
        assert each["security_opt"] == ["no-new-privileges:true"], name
        assert "privileged" not in each, name
        assert each["image"].startswith("${"), name
        # The image's entrypoint is `gpusteward`.
        assert ("entrypoint" in each) == (each["image"] == "${STEWARD_IMAGE}"), name
        if name != "volumes":
            assert each["user"] == "${STEWARD_UID}:${STEWARD_GID}", name
            assert each["restart"] == "unless-stopped", name
            assert "cap_add" not in each, name


def test_only_gateway_and_bus_are_published(directory: Path) -> None:
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
def test_no_container_has_a_password_variable(stack: str) -> None:
    for name, each in services_of(stack).items():
        for variable, value in each.get("environment", {}).items():
            if variable.endswith("_DSN"):
                pattern = r"postgresql://gpusteward_[a-z]+@postgres/gpusteward" + re.escape(
                    VERIFIED
                )
                assert re.fullmatch(pattern, value)
            assert not re.search(r"(?i)password(?!_file)|token(?!s_file)", variable), (
                name,
                variable,
            )


def test_each_service_uses_its_postgres_login(directory: Path) -> None:
    roles = (directory / "postgres/init/roles.sql").read_text()

    for service in SERVICES:
        host, port, database, role, password = (
            (directory / f"postgres/{service}.pgpass").read_text().strip().split(":")
        )
        assert (host, port, database, role) == (
            "*",  # whichever server is the primary
            "5432",
            "gpusteward",
            f"gpusteward_{service}",
        )
        assert f"ALTER ROLE {role} LOGIN PASSWORD '{password}';" in roles


def test_further_node_gets_only_its_credential(
    directory: Path,
) -> None:
    printed = run("add-node", "beta", "--nats", SERVERS, "--directory", str(directory))

    node = directory / "nodes" / "beta"
    users = ComposeDirectory(directory).users
    assert sorted(str(path.relative_to(node)) for path in node.rglob("*")) == [
        *(".env", COMPOSE_FILE, "node_beta.json", "tls"),
        *("tls/ca.pem", "tls/server.key", "tls/server.pem"),
    ]
    assert (node / "node_beta.json").read_bytes() == users.path_of("node_beta").read_bytes()
    assert isinstance(users.read("node_beta"), Credentials)
    assert '"user":"node_beta"' in users.configuration_path.read_text()
    environment, platform = (
        ComposeDirectory(node).environment,
        ComposeDirectory(directory).environment,
    )
    assert environment["STEWARD_NATS_URL"] == SERVERS
    assert environment["STEWARD_INSTALLATION_ID"] != platform["STEWARD_INSTALLATION_ID"]
    assert "gpusteward node admit beta" in printed.output


def test_prometheus_knows_metrics_of_further_node(directory: Path) -> None:
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


def test_cluster_services_have_own_credential(directory: Path) -> None:
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


def test_unmakeable_stack_is_refused_with_reason(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("mine")

    with pytest.raises(CommandFailed, match="to be new, empty, or made by this command before"):
        run("init", str(tmp_path))
    with pytest.raises(CommandFailed, match=r"has no \.env; `gpusteward compose init` makes one"):
        run("add-node", "beta", "--nats", "nats://h:1", "--directory", str(tmp_path))
    assert run("add-node", "be ta", "--nats", "nats://h:1").exit_code == 2
    wrong = run("add-node", "beta", "--nats", "nats://h:1;nats://i:1")
    assert (wrong.exit_code, "nats://h:1;nats://i:1" in wrong.output) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_ha_has_two_of_each_service_at_every_server(tmp_path: Path) -> None:
    run("init", str(tmp_path / "steward"), "--node-id", "alpha", "--ha")
    services = services_of("ha.yaml")

    for name in sorted(SERVICES):
        for instance in (name, f"{name}-2"):
            environment = services[instance]["environment"]
            servers = environment["GPUSTEWARD_NATS_URL"].split(",")
            assert [url.rpartition("/")[2] for url in servers] == [
                *("nats:4222", "nats-2:4222", "nats-3:4222")
            ], instance
            dsn = environment["GPUSTEWARD_POSTGRES_DSN"]
            place = f"gpusteward_{name}@postgres,postgres-2/gpusteward"
            assert dsn == f"postgresql://{place}{VERIFIED}"


def test_ha_directory_has_what_its_file_names(tmp_path: Path) -> None:
    root = tmp_path / "steward"
    run("init", str(root), "--node-id", "alpha", "--ha")
    before = content_of(root)
    run("init", str(root), "--node-id", "alpha", "--ha")

    content = yaml.safe_load((root / "ha.yaml").read_text())
    patroni = yaml.safe_load((root / "postgres/patroni.yml").read_text())
    environment = ComposeDirectory(root).environment
    named = set(VARIABLE.findall((root / "ha.yaml").read_text()))
    assert environment["COMPOSE_FILE"] == "compose.yaml:ha.yaml"
    assert named <= environment.keys()
    assert all((root / secret["file"]).is_file() for secret in content["secrets"].values())
    assert patroni["postgresql"]["authentication"]["superuser"]["password"] == (
        (root / "postgres/password").read_text()
    )
    assert patroni["bootstrap"]["dcs"]["synchronous_mode"] is True
    assert stat.S_IMODE((root / "ha/first-start.sh").stat().st_mode) == 0o700
    for number in (1, 2, 3):
        assert 'routes: ["nats://route:' in (root / f"nats/nats-{number}.conf").read_text()
    assert content_of(root) == before


@pytest.mark.parametrize("stack", ["compose.yaml", "ha.yaml", "node.yaml"])
def test_nothing_is_spoken_in_plain_text(stack: str, tmp_path: Path) -> None:
    """No address of a scheme without TLS, and settings that would be refused without it."""
    root = tmp_path / "steward"
    run("init", str(root), "--node-id", "alpha", "--ha")
    run("add-node", "beta", "--nats", "nats://10.0.0.1:4222", "--directory", str(root))
    made = ComposeDirectory(root / "nodes" / "beta" if stack == "node.yaml" else root)
    base = services_of("compose.yaml") if stack == "ha.yaml" else {}
    for name, each in services_of(stack).items():
        own = environment_of({"environment": {}, **each}, made.environment)
        schemes = re.findall(r"\b(http|nats|ws)://(?!127\.0\.0\.1)", str(own))
        assert schemes == [] or stack == "node.yaml", (name, own)
        entrypoint = each.get("entrypoint", base.get(name, {}).get("entrypoint", []))
        if entrypoint[:2] == ["python", "-m"]:
            service = entrypoint[2].removeprefix("services.")
            inherited = environment_of({"environment": {}, **base.get(name, {})}, made.environment)
            environment = {**inherited, **own}
            user = environment["GPUSTEWARD_NATS_CREDENTIALS"].rpartition("/")[2]
            environment["GPUSTEWARD_NATS_CREDENTIALS"] = str(credentials_of(made, stack, user))
            load_settings(SETTINGS[service], service, environment)


def credentials_of(made: ComposeDirectory, stack: str, secret: str) -> Path:
    name = "ha.yaml" if stack == "ha.yaml" else COMPOSE_FILE
    declared = yaml.safe_load((made.root / name).read_text())["secrets"]
    if secret not in declared:
        declared = yaml.safe_load((made.root / COMPOSE_FILE).read_text())["secrets"]
    file = VARIABLE.sub(lambda found: made.environment[found[1]], declared[secret]["file"])
    return made.root / file


def test_certificates_near_their_end_are_made_anew(directory: Path) -> None:
    authority = Authority(directory / "tls")
    authority.issue("nats", ["old.example.org"], now=utcnow() - LEAF_LIFE * 0.9)
    before = content_of(directory)

    again = run("init", str(directory))

    changed = {name for name, content in content_of(directory).items() if before[name] != content}
    assert changed == {"tls/nats/server.pem", "tls/nats/server.key"}
    assert "made 1 files" in again.output


def test_every_credential_carries_the_authority(directory: Path) -> None:
    users = ComposeDirectory(directory).users
    authority = (directory / "tls/ca.pem").read_text()

    assert {users.read(path.stem).ca for path in users.directory.glob("*.json")} == {authority}
    assert stat.S_IMODE((directory / "tls/ca.key").stat().st_mode) == 0o600
