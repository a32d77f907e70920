from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from schemas.gpus.device_grant import DeviceGrant, DeviceShare, ShareKind
from services.executor.engines.engine_table import IMAGES
from services.executor.engines.image import HostMount, container_command
from services.executor.runtimes.docker.spec import Abilities, ContainerParts, container_settings
from services.executor.runtimes.docker.starting import digest_of
from services.executor.runtimes.runtime import Launch
from tests.support.worlds.executor import NODE
from tests.support.worlds.runtime_launches import launch_of, runtime_settings, start_of

RESERVATION = UUID("0192b1a0-0000-7000-8000-000000000001")
HALF = DeviceShare(kind=ShareKind.MPS, compute_percent=50, memory_mb=4096)


def device(uuid: str = "GPU-a", index: int = 0, **overrides: Any) -> DeviceGrant:
    given: dict[str, Any] = {"node_id": NODE, "uuid": uuid, "index": index, "name": "GPU"}
    return DeviceGrant(**given | overrides)


def launch(tmp_path: Path, *devices: DeviceGrant, **overrides: Any) -> Launch:
    command = start_of("vllm", reservation_id=RESERVATION, devices=devices, **overrides)
    return launch_of(command, runtime_settings(tmp_path))


def made(**overrides: Any) -> ContainerParts:
    image = IMAGES["vllm"]
    given: dict[str, Any] = {
        "image": image,
        "reference": image.reference(None),
        "command": container_command(image, "a/model", {}, served_model_name="a/model"),
        "listens_on": image.port,
    }
    return ContainerParts(**given | overrides)


def body(
    launched: Launch,
    made: ContainerParts,
    abilities: Abilities | None = None,
    **settings: Any,
) -> dict[str, Any]:
    given = runtime_settings(launched.directory, **settings)
    return container_settings(launched, made, abilities or Abilities(), given)


def environment(container: dict[str, Any]) -> dict[str, str]:
    return dict(variable.partition("=")[::2] for variable in container["Env"])


def test_compile_cache_is_mounted_where_host_has_room(tmp_path: Path) -> None:
    launched = launch(tmp_path, device())

    plain = body(launched, made())
    kept = body(launched, made(compile_cache=Path("/caches/a/1/0/files")))

    assert "TRITON_CACHE_DIR" not in environment(plain)
    assert environment(kept)["TRITON_CACHE_DIR"] == "/var/cache/compiled/triton"
    (mount,) = kept["HostConfig"]["Mounts"]
    assert (mount["Source"], mount["Target"], mount["ReadOnly"]) == (
        *("/caches/a/1/0/files", "/var/cache/compiled", False),
    )


@pytest.mark.parametrize(
    ("ids", "want"),
    [
        pytest.param("uuid", ["GPU-a", "GPU-b"], id="by uuid"),
        pytest.param("index", ["0", "3"], id="by index, where the operator says so"),
        pytest.param("cdi", ["nvidia.com/gpu=GPU-a", "nvidia.com/gpu=GPU-b"], id="by CDI name"),
    ],
)
def test_only_granted_devices_are_requested(tmp_path: Path, ids: str, want: list[str]) -> None:
    elsewhere = device("GPU-c", 1, node_id="another")
    launched = launch(tmp_path, device("GPU-b", 3), elsewhere, device("GPU-a", 0))

    container = body(launched, made(), docker_device_ids=ids)

    (request,) = container["HostConfig"]["DeviceRequests"]
    assert request["DeviceIDs"] == want
    assert "Count" not in request
    assert not {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"} & environment(container).keys()


def test_amd_gpus_come_as_device_files(tmp_path: Path) -> None:
    launched = launch(tmp_path, device("a", 0, name="AMD Instinct MI300X"))

    container = body(
        launched, made(device_files=("/dev/kfd", "/dev/dri/renderD128"), device_groups=(44, 993))
    )

    host = container["HostConfig"]
    assert host["DeviceRequests"] == []
    assert [each["PathOnHost"] for each in host["Devices"]] == ["/dev/kfd", "/dev/dri/renderD128"]
    assert host["GroupAdd"] == ["44", "993"]
    assert not {name for name in environment(container) if name.endswith("VISIBLE_DEVICES")}


def test_mig_instance_goes_by_uuid_despite_indexes(tmp_path: Path) -> None:
    launched = launch(tmp_path, device("MIG-1", 2, mig_profile="1g.10gb"))

    container = body(launched, made(), docker_device_ids="index")

    assert container["HostConfig"]["DeviceRequests"][0]["DeviceIDs"] == ["MIG-1"]


def test_simulated_devices_give_no_real_device(tmp_path: Path) -> None:
    container = body(launch(tmp_path, device("SIM-1", simulated=True)), made())

    assert container["HostConfig"]["DeviceRequests"] == []
    assert environment(container)["GPUSTEWARD_DEVICES"] == "SIM-1"
    assert environment(container)["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_device_share_is_a_client_of_mps_daemon(tmp_path: Path) -> None:
    container = body(launch(tmp_path, device(share=HALF)), made(), mps_pipe_dir="/run/mps")

    given = environment(container)
    host = container["HostConfig"]
    assert given["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"
    assert given["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=4096M"
    assert given["CUDA_MPS_PIPE_DIRECTORY"] == "/run/mps"
    assert host["IpcMode"] == "host"
    assert [mount["Source"] for mount in host["Mounts"]] == ["/run/mps"]


def test_whole_device_shares_nothing_with_host(tmp_path: Path) -> None:
    host = body(launch(tmp_path, device()), made())["HostConfig"]

    assert (host["IpcMode"], host["Mounts"]) == ("private", [])


def test_passed_variables_never_override_ours(tmp_path: Path) -> None:
    passed = {"HF_TOKEN": "hf_1", "GPUSTEWARD_NODE": "another"}

    given = environment(body(launch(tmp_path, device()), made(passed=passed)))

    assert given["HF_TOKEN"] == "hf_1"
    assert given["GPUSTEWARD_NODE"] == NODE


def test_secret_of_namespace_wins_over_operators(tmp_path: Path) -> None:
    launched = replace(launch(tmp_path, device()), secrets={"HF_TOKEN": "hf_2", "A_KEY": "k"})

    given = environment(body(launched, made(passed={"HF_TOKEN": "hf_1"})))

    assert (given["HF_TOKEN"], given["A_KEY"]) == ("hf_2", "k")
    assert "hf_2" not in repr(launched)


def test_container_has_no_privileges_and_no_restart(tmp_path: Path) -> None:
    host = body(launch(tmp_path, device()), made())["HostConfig"]

    assert host["CapDrop"] == ["ALL"]
    assert host["CapAdd"] == ["DAC_OVERRIDE"]
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert (host["Privileged"], host["AutoRemove"]) == (False, False)
    assert host["RestartPolicy"] == {"Name": "no"}
    assert not any("docker.sock" in str(mount) for mount in host["Mounts"])
    assert host["LogConfig"]["Config"]["max-size"] == "16m"


def test_labels_and_environment_tell_whose_it_is(tmp_path: Path) -> None:
    launched = launch(tmp_path, device())
    command = launched.command

    container = body(launched, made())

    assert container["Labels"] == {
        "gpusteward.reservation": str(RESERVATION),
        "gpusteward.installation": launched.labels.installation_id,
        "gpusteward.node": NODE,
        "gpusteward.epoch": "7",
        "gpusteward.experiment": str(command.experiment_id),
        "gpusteward.attempt": str(command.attempt_id),
    }
    given = environment(container)
    for name in ("reservation", "installation", "node", "epoch", "experiment", "attempt"):
        assert given[f"GPUSTEWARD_{name.upper()}"] == container["Labels"][f"gpusteward.{name}"]


def test_port_is_published_on_random_loopback_port(tmp_path: Path) -> None:
    container = body(launch(tmp_path, device()), made())

    assert container["HostConfig"]["PortBindings"] == {
        "8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": ""}]
    }
    assert container["ExposedPorts"] == {"8000/tcp": {}}


def test_gang_rank_uses_host_network(tmp_path: Path) -> None:
    container = body(launch(tmp_path, device()), made(on_host_network=True))

    assert container["HostConfig"]["NetworkMode"] == "host"
    assert "PortBindings" not in container["HostConfig"]
    assert "ExposedPorts" not in container


@pytest.mark.parametrize(
    ("command", "settings", "want"),
    [
        pytest.param({}, {}, (0, 0), id="unbounded"),
        pytest.param({}, {"engine_memory_mb": 64, "engine_cpus": 1.5}, (64, 1.5), id="by the node"),
        pytest.param(
            {"host_memory_mb": 32, "cpu_count": 0.5},
            {"engine_memory_mb": 64, "engine_cpus": 1.5},
            (32, 0.5),
            id="by the reservation",
        ),
    ],
)
def test_memory_without_swap_and_cpus_are_bounded(
    tmp_path: Path, command: dict[str, Any], settings: dict[str, Any], want: tuple[int, float]
) -> None:
    host = body(launch(tmp_path, device(), **command), made(), **settings)["HostConfig"]

    assert host["Memory"] == host["MemorySwap"] == want[0] << 20
    assert host["NanoCpus"] == want[1] * 1e9
    assert host["PidsLimit"] == 32_768


def test_models_and_model_cache_are_mounted(tmp_path: Path) -> None:
    model = HostMount(source=Path("/srv/models/a"), target="/srv/models/a")

    container = body(launch(tmp_path, device()), made(mounts=(model,)), model_cache_dir="/srv/hub")

    seen = [(m["Source"], m["ReadOnly"]) for m in container["HostConfig"]["Mounts"]]
    assert seen == [("/srv/models/a", True), ("/srv/hub", False)]
    assert environment(container)["HF_HOME"] == container["HostConfig"]["Mounts"][1]["Target"]


def test_what_the_engine_lacks_is_left_out(tmp_path: Path) -> None:
    host = body(launch(tmp_path, device()), made(), Abilities(has_init=False, raises_limits=False))[
        "HostConfig"
    ]

    assert (host["Init"], host["Ulimits"]) == (False, [])


def test_container_settings_match_docker_format(tmp_path: Path) -> None:
    container = body(launch(tmp_path, device(share=HALF)), made(), model_cache_dir="/srv/hub")

    assert msgspec.json.decode(msgspec.json.encode(container)) == container
    assert container["Entrypoint"] == ["vllm", "serve"]
    assert container["Cmd"][0] == "a/model"


OTHER = "team/mirror@sha256:bb"


@pytest.mark.parametrize(
    ("reference", "digests", "told"),
    [
        (
            "vllm/vllm-openai:v1",
            [OTHER, "vllm/vllm-openai@sha256:aa"],
            "vllm/vllm-openai@sha256:aa",
        ),
        ("host:5000/vllm", [OTHER, "host:5000/vllm@sha256:aa"], "host:5000/vllm@sha256:aa"),
        ("built:here", [], "sha256:id"),
        ("sha256:id", [OTHER], OTHER),
        ("gone:meanwhile", None, "sha256:id"),
    ],
)
def test_running_image_is_known_by_digest_or_id(
    reference: str, digests: list[str] | None, told: str
) -> None:
    container = {"Image": "sha256:id", "Config": {"Image": reference}}

    assert digest_of(container, {"RepoDigests": digests}) == told
