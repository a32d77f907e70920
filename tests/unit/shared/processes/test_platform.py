"""Which processes a platform is made of and what each of them is told."""

import json
import re
from pathlib import Path

import pytest

from shared.ids import host_node_id, node_token
from shared.lifecycle import ENVIRONMENTS_VARIABLE
from shared.local_platform.platform import (
    ADMIT_NODES_VARIABLE,
    AGENT_SERVICES,
    POSTGRES_VARIABLE,
    ClusterOptions,
    Platform,
    PlatformOptions,
)
from shared.local_platform.supervisor.service import Child, ChildSpec
from shared.paths import default_data_dir


def platform_children(options: PlatformOptions) -> list[Child | ChildSpec]:
    """In the order of their start."""
    return [child for stage in Platform(options).stages for child in stage]


def spec_of(options: PlatformOptions, name: str) -> ChildSpec:
    return next(
        child
        for child in platform_children(options)
        if isinstance(child, ChildSpec) and child.name == name
    )


def environment_of(options: PlatformOptions, name: str) -> dict[str, str]:
    env = spec_of(options, name).env
    assert callable(env)
    return dict(env())


def options_at(data_dir: Path, **changes: object) -> PlatformOptions:
    servers = {"nats_url": "nats://10.0.0.1:4222", "postgres_dsn": "postgresql://db/gpusteward"}
    return PlatformOptions(data_dir=data_dir, **{**servers, **changes})  # type: ignore[arg-type]  # fields by name


def test_servers_precede_services_gateway_is_last(tmp_path: Path) -> None:
    names = [child.name for child in platform_children(PlatformOptions(data_dir=tmp_path))]

    assert names == [
        *("nats", "postgres"),
        *("scheduler", "telemetry", "results", "orchestrator", "executor", "gateway"),
        "scheduler-2",
    ]


def test_a_standby_of_each_platform_service_shares_its_address(tmp_path: Path) -> None:
    options = PlatformOptions(data_dir=tmp_path, standby=True)
    names = [child.name for child in platform_children(options)]

    assert names[8:] == ["scheduler-2", "results-2", "orchestrator-2", "gateway-2"]
    assert spec_of(options, "gateway-2").argv[-1] == "services.gateway"
    own = Platform(options)._own_environment("gateway")  # noqa: SLF001  # the rest needs a server
    assert own["GPUSTEWARD_GATEWAY_SHARES_PORT"] == "true"


def test_compact_services_share_a_process_but_no_login(tmp_path: Path) -> None:
    options = PlatformOptions(
        data_dir=tmp_path,
        nats_url="nats://127.0.0.1:4222",
        postgres_dsn="postgresql://127.0.0.1/gpusteward",
        compact=True,
    )
    spec = spec_of(options, "services")
    variables = json.loads(environment_of(options, "services")[ENVIRONMENTS_VARIABLE])

    names = [child.name for child in platform_children(options)]
    assert names == ["executor", "services", "scheduler-2"]
    assert list(spec.argv[-5:]) == list(variables)
    assert POSTGRES_VARIABLE in variables["gateway"]
    assert POSTGRES_VARIABLE not in variables["telemetry"]


def test_existing_servers_replace_embedded_ones(tmp_path: Path) -> None:
    options = options_at(tmp_path, nats_credentials_path=tmp_path / "credentials.json")

    env = environment_of(options, "scheduler")

    assert "nats" not in [child.name for child in platform_children(options)]
    assert env["GPUSTEWARD_NATS_URL"] == "nats://10.0.0.1:4222"
    assert env["GPUSTEWARD_NATS_CREDENTIALS"] == str(tmp_path / "credentials.json")
    assert env["GPUSTEWARD_POSTGRES_DSN"] == "postgresql://db/gpusteward"
    assert env["GPUSTEWARD_DATA_DIR"] == str(tmp_path)
    assert "GPUSTEWARD_TELEMETRY_SOURCE" not in env


def test_agent_runs_without_postgres(tmp_path: Path) -> None:
    options = options_at(tmp_path, postgres_dsn=None, services=AGENT_SERVICES)

    assert [child.name for child in platform_children(options)] == ["telemetry", "executor"]
    assert Platform(options).api_url is None
    assert "GPUSTEWARD_POSTGRES_DSN" not in environment_of(options, "executor")


def test_cluster_adds_two_processes(tmp_path: Path) -> None:
    cluster = ClusterOptions(cluster_id="prod", kubeconfig="/k", context="c")
    options = options_at(
        tmp_path, nats_credentials_path=tmp_path, cluster=cluster, services=("scheduler",)
    )

    env = environment_of(options, "cluster-executor")

    assert [child.name for child in platform_children(options)] == [
        *("scheduler", "scheduler-2"),
        *("cluster", "cluster-executor"),
    ]
    assert spec_of(options, "cluster").argv[-1] == "services.cluster"
    assert spec_of(options, "cluster-executor").argv[-1] == "services.executor"
    assert env == environment_of(options, "cluster")
    assert env["GPUSTEWARD_NODE_ID"] == "prod"
    assert env["GPUSTEWARD_DATA_DIR"] == str(tmp_path / "clusters" / "prod")
    assert env["GPUSTEWARD_NATS_CREDENTIALS"] == str(tmp_path / "node_prod.json")
    assert env["GPUSTEWARD_EXECUTOR_CLUSTER"] == "true"
    assert (env["GPUSTEWARD_KUBECONFIG"], env["GPUSTEWARD_KUBE_CONTEXT"]) == ("/k", "c")
    admitted = environment_of(options, "scheduler")[ADMIT_NODES_VARIABLE]
    assert admitted == f"{options.node_id or host_node_id()},prod"


def test_a_clusters_second_adapter_waits_for_its_first(tmp_path: Path) -> None:
    options = options_at(
        tmp_path, cluster=ClusterOptions(cluster_id="prod"), services=("scheduler",), standby=True
    )

    env = environment_of(options, "cluster-2")

    assert spec_of(options, "cluster-2").argv[-1] == "services.cluster"
    assert env == {**environment_of(options, "cluster"), "GPUSTEWARD_CLUSTER_STANDBY": "true"}


def test_a_fleet_is_simulated_only_where_asked_for(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.toml"

    asked = environment_of(options_at(tmp_path, fleet=fleet), "telemetry")
    flagged = environment_of(options_at(tmp_path, simulate=True), "telemetry")
    plain = environment_of(options_at(tmp_path), "telemetry")

    assert asked["GPUSTEWARD_TELEMETRY_SOURCE"] == "simulated"
    assert asked["GPUSTEWARD_TELEMETRY_FLEET"] == str(fleet)
    assert flagged["GPUSTEWARD_TELEMETRY_SOURCE"] == "simulated"
    assert "GPUSTEWARD_TELEMETRY_FLEET" not in flagged
    assert "GPUSTEWARD_TELEMETRY_SOURCE" not in plain


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param({"nats_url": None}, True, id="embedded"),
        pytest.param({"nats_url": None, "nats_host": "10.0.0.5"}, False, id="embedded, for others"),
        pytest.param({"nats_url": "nats://bus.lan:4222"}, False, id="of other machines"),
        pytest.param({"nats_url": "nats://127.0.0.1:4222"}, True, id="given, of this machine"),
        pytest.param(
            {"nats_url": "nats://127.0.0.1:4222,nats://bus.lan:4222"}, False, id="one elsewhere"
        ),
    ],
)
def test_bus_is_local_if_only_reached_from_here(
    tmp_path: Path, given: dict[str, object], want: bool
) -> None:
    assert options_at(tmp_path, **given).is_bus_local is want


def test_only_own_node_needs_no_admission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ADMIT_NODES_VARIABLE, raising=False)
    options = options_at(tmp_path, node_id="this-node")

    found = environment_of(options, "scheduler")[ADMIT_NODES_VARIABLE]
    monkeypatch.setenv(ADMIT_NODES_VARIABLE, "*")
    chosen = environment_of(options, "scheduler")[ADMIT_NODES_VARIABLE]

    assert (found, chosen) == ("this-node", "*")


def test_an_unknown_service_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected services among .*'billing'"):
        Platform(options_at(tmp_path, services=("billing",)))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        pytest.param("a100-3", r"a100-3", id="a token stays as it is"),
        pytest.param(
            "ip-10-0-0-1.ec2.internal", r"ip-10-0-0-1-ec2-internal-[0-9a-f]{8}", id="dots"
        ),
        pytest.param("n" * 200, r"n{119}-[0-9a-f]{8}", id="too long"),
    ],
)
def test_a_host_name_becomes_a_node_id(name: str, wanted: str) -> None:
    assert re.fullmatch(wanted, node_token(name))


def test_the_data_directory_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", "/home/ada")

    assert default_data_dir({"GPUSTEWARD_DATA_DIR": "/srv/steward"}) == Path("/srv/steward")
    assert default_data_dir({"XDG_DATA_HOME": "/data"}) == Path("/data/gpusteward")
    assert default_data_dir({"XDG_DATA_HOME": "data"}) == Path("/home/ada/.local/share/gpusteward")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert default_data_dir({}) == Path("/var/lib/gpusteward")
