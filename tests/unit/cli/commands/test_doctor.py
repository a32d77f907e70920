"""The checks of `gpusteward doctor` over hosts made of files and of stand-in programs.

The hardware is missing: boards, drivers and tools are files under a directory that stands for `/`.
"""

import io
import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import psutil
import pytest

from services.cli.command_line import main
from services.cli.doctor import containers, gpus, host, installation
from services.cli.doctor.all_probes import all_probes
from services.cli.doctor.check import CheckResult, Probe, State, error, ok, printable
from services.cli.doctor.cluster_report import ClusterReport
from services.cli.doctor.docker_report import DockerReport, docker_address
from services.cli.doctor.examination import examine
from services.cli.doctor.host_facts import HostFacts, LazyValue
from services.cli.doctor.kubernetes import cluster, ome, server_of
from services.cli.doctor.nvml_report import NvmlGpu, NvmlReport
from services.cli.doctor.program import run_program
from services.cli.doctor.software import TOOLS
from shared.benchmarks.tools.present import ADAPTERS
from shared.local_platform.supervisor.supervisor import ChildState
from shared.local_platform.supervisor.supervisor import State as ChildLife
from shared.paths import DataDirectory, Endpoint
from tests.support.disks.small_disk import every_disk_full
from tests.support.fakes.nvidia_smi import FakeSmi, make_gpu
from tests.support.idle_clock import idle_thread
from tests.support.processes.children import children_named

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OPEN_DRIVER = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build\n"
    "GCC version:  gcc version 12.3.0\n"
)
OLD_DRIVER = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.82.01  Wed Oct 27 21:21:55 2021\n"
GARBAGE = "printf '\\033[2J\\377\\000 what is this'"


class FakeHost:
    """Files of a host, and programs that its PATH has; nothing of the real one is seen."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "root"
        self.bin = directory / "bin"
        self.bin.mkdir()
        self.facts = HostFacts(
            data_dir=directory / "data",
            root=self.root,
            environment={"PATH": str(self.bin), "HOME": str(directory)},
            program_seconds=0.5,
            system_directories="",
        )

    def file(self, place: str, content: str = "") -> None:
        path = self.root / place.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    def board(self, number: int, vendor: str = "0x10de", kind: str = "0x030200") -> None:
        self.file(f"/sys/bus/pci/devices/0000:0{number}:00.0/vendor", f"{vendor}\n")
        self.file(f"/sys/bus/pci/devices/0000:0{number}:00.0/class", f"{kind}\n")

    def program(self, name: str, body: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def nvml(self, report: NvmlReport) -> None:
        self.facts.nvml = LazyValue(lambda: report)

    def docker(self, **told: object) -> None:
        report = msgspec.convert({"address": "unix:///run/docker.sock", **told}, DockerReport)
        self.facts.docker = LazyValue(lambda: report)


@pytest.fixture
def fake(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


def make_probe(
    name: str, inspect: Callable[[HostFacts], CheckResult], *, needed: bool = False
) -> Probe:
    return Probe(name=name, why="a test", inspect=inspect, needed=needed)


def test_hanging_check_does_not_affect_others(fake: FakeHost) -> None:
    end = threading.Event()

    def hang(_: HostFacts) -> CheckResult:
        end.wait()
        return ok("never")

    def break_(_: HostFacts) -> CheckResult:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "garbage")

    probes = [
        make_probe("hung", hang),
        make_probe("broken", break_),
        make_probe("fine", lambda _: ok("here")),
        make_probe("hung too", hang),
    ]
    with idle_thread() as clock:
        checks = examine(probes, fake.facts, deadline_seconds=0.2)
    end.set()

    assert clock() < 2
    assert [check.state for check in checks] == [State.ERROR, State.ERROR, State.OK, State.ERROR]
    assert checks[0].found == "no answer within 0.2 s"
    assert "UnicodeDecodeError" in checks[1].found


def test_processors_that_save_power_are_a_warning(fake: FakeHost) -> None:
    [probe] = [probe for probe in host.PROBES if probe.name == "CPU governor"]
    place = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"

    none = probe.inspect(fake.facts)
    fake.file(place, "powersave\n")
    saving = probe.inspect(fake.facts)
    fake.file(place, "performance\n")
    full = probe.inspect(fake.facts)

    assert [check.state for check in (none, saving, full)] == [
        State.NOT_APPLICABLE,
        State.WARN,
        State.OK,
    ]
    assert "performance" in saving.fix  # how to end it


def test_only_needed_and_broken_checks_fail() -> None:
    states = [State.OK, State.WARN, State.NOT_APPLICABLE, State.MISSING, State.ERROR]

    failing = {
        (needed, state)
        for needed in (True, False)
        for state in states
        if make_probe("x", lambda _: ok(""), needed=needed).check(CheckResult(state, "")).fails
    }

    assert failing == {(True, State.MISSING), (True, State.ERROR)}


def test_every_failed_check_of_bare_host_has_a_fix(
    fake: FakeHost,
) -> None:
    checks = examine(all_probes(), fake.facts, deadline_seconds=10)

    assert len({check.name for check in checks}) == len(checks)
    for check in checks:
        assert check.why
        assert check.found
        assert "the check itself failed" not in check.found
        assert bool(check.fix) == (check.state not in {State.OK, State.NOT_APPLICABLE}), check


def test_output_is_one_line_without_escapes() -> None:
    assert printable("a\x1b[2J\r\nb\x00\x9bc  d") == "a [2J b c d"
    assert len(printable("x" * 10_000)) == 240


@pytest.mark.parametrize(
    ("body", "asked_seconds", "problem"),
    [
        pytest.param("sleep 60 & sleep 60", 0.3, "no end within 0.3 s", id="hangs, with a child"),
        pytest.param("sleep 40 >/dev/null 2>&1 &", 5, "", id="leaves a child that writes nothing"),
        pytest.param("exec yes", 5, "it writes without end", id="writes without end"),
        pytest.param("exec >&- 2>&-; sleep 60", 0.3, "no end within 0.3 s", id="closes and stays"),
        pytest.param(GARBAGE, 5, "", id="prints garbage"),
    ],
)
def test_program_is_never_awaited_past_timeout(
    fake: FakeHost, body: str, asked_seconds: float, problem: str
) -> None:
    fake.program("tool", body)

    with idle_thread() as clock:
        output = run_program([str(fake.bin / "tool")], asked_seconds)

    assert output.failure == problem
    assert (output.exit_code is None) == bool(problem)
    assert clock() < asked_seconds + 2.7
    if problem:
        assert children_named("tool") == []


def test_a_program_that_cannot_be_started_is_told(tmp_path: Path) -> None:
    assert "it does not start" in run_program([str(tmp_path / "none")], 1).failure


@pytest.mark.parametrize(
    ("boards", "files", "want"),
    [
        pytest.param(0, [], State.NOT_APPLICABLE, id="none"),
        pytest.param(2, ["nvidia0", "nvidia1"], State.OK, id="all"),
        pytest.param(2, [], State.ERROR, id="no driver"),
        pytest.param(2, ["nvidia0", "nvidiactl"], State.WARN, id="one is gone"),
        pytest.param(0, ["nvidia0"], State.OK, id="in a container without the bus"),
        pytest.param(0, ["dxg"], State.OK, id="under WSL"),
    ],
)
def test_boards_and_device_files_are_compared(
    fake: FakeHost, boards: int, files: list[str], want: State
) -> None:
    for number in range(boards):
        fake.board(number)
    fake.board(8, vendor="0x8086", kind="0x030000")
    fake.board(9, kind="0x040300")  # the sound of a graphics board
    for name in files:
        fake.file(f"/dev/{name}")

    assert gpus.nvidia_boards(fake.facts).state is want


@pytest.mark.parametrize(
    ("places", "want", "found"),
    [
        pytest.param({"/proc/driver/nvidia/version": OPEN_DRIVER}, State.OK, "570.133.20 (open",
                     id="open"),
        pytest.param({"/sys/module/nvidia/version": "550.54.15\n"}, State.OK, "550.54.15",
                     id="sys"),
        pytest.param({"/proc/driver/nvidia/version": OLD_DRIVER}, State.WARN, "470.82.01",
                     id="old"),
        pytest.param({"/proc/driver/nvidia/version": "\x00\xff"}, State.WARN, "unknown version",
                     id="garbage"),
        pytest.param({"/sys/module/nouveau/x": ""}, State.ERROR, "nouveau", id="nouveau"),
        pytest.param({}, State.ERROR, "not loaded", id="none"),
    ],
)  # fmt: skip
def test_loaded_driver_differs_from_nouveau(
    fake: FakeHost, places: dict[str, str], want: State, found: str
) -> None:
    fake.board(1)
    for place, content in places.items():
        fake.file(place, content)

    seen = gpus.nvidia_driver(fake.facts)

    assert seen.state is want
    assert found in seen.found


def test_a_host_without_boards_needs_no_driver(fake: FakeHost) -> None:
    assert gpus.nvidia_driver(fake.facts).state is State.NOT_APPLICABLE
    assert gpus.nvidia_smi(fake.facts).state is State.NOT_APPLICABLE
    assert containers.container_toolkit(fake.facts).state is State.NOT_APPLICABLE
    assert gpus.amd(fake.facts).state is State.NOT_APPLICABLE


def test_gpus_are_counted_and_lost_one_is_error(fake: FakeHost) -> None:
    h100 = [NvmlGpu(index=n, name="NVIDIA H100", memory_mb=81_559, persistence=1) for n in (0, 1)]
    fake.nvml(NvmlReport(driver="570.1", cuda=12_080, gpus=tuple(h100)))
    whole = gpus.nvml(fake.facts)
    fake.nvml(NvmlReport(driver="570.1", gpus=(h100[0], NvmlGpu(index=1, error="GPU is lost"))))
    lost = gpus.nvml(fake.facts)

    assert whole == ok("driver 570.1, serves CUDA up to 12.8, 2 x NVIDIA H100 with 81559 MiB")
    assert lost.state is State.ERROR
    assert "GPU 1: GPU is lost" in lost.found


def test_hung_driver_is_named_without_board(fake: FakeHost) -> None:
    fake.nvml(NvmlReport(error="no output (no end within 3 s)", is_hung=True))

    assert gpus.nvml(fake.facts) == error("no output (no end within 3 s)", gpus.HUNG)


def test_nvml_error_is_explained(fake: FakeHost) -> None:
    fake.board(1)
    fake.nvml(NvmlReport(error="Driver/library version mismatch"))

    assert "reboot" in gpus.nvml(fake.facts).fix


def test_persistence_off_and_mig_are_told_by_gpu(fake: FakeHost) -> None:
    fake.nvml(
        NvmlReport(
            gpus=(
                NvmlGpu(index=0, persistence=1, mig=1),
                NvmlGpu(index=1, persistence=0, mig=0),
                NvmlGpu(index=2),
            )
        )
    )

    seen = gpus.gpu_modes(fake.facts)

    assert seen.state is State.WARN
    assert seen.found == "MIG on GPU 0, persistence off on GPU 1"


@pytest.mark.parametrize(
    ("body", "want", "told"),
    [
        pytest.param(GARBAGE, State.WARN, "something else than GPUs", id="garbage"),
        pytest.param(":", State.WARN, "something else than GPUs", id="nothing"),
        pytest.param(
            "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18",
            State.ERROR,
            "(exit code 18)",
            id="a known error",
        ),
        pytest.param("/bin/sleep 60", State.ERROR, "no end within 0.5 s", id="hangs"),
    ],
)
def test_nvidia_smi_counts_only_if_it_lists_gpus(
    fake: FakeHost, body: str, want: State, told: str
) -> None:
    fake.board(1)
    fake.program("nvidia-smi", body)

    seen = gpus.nvidia_smi(fake.facts)

    assert seen.state is want
    assert told in seen.found
    assert seen.fix


def test_nvidia_smi_reports_driver_and_gpus(fake: FakeHost) -> None:
    FakeSmi(fake.bin).answer([make_gpu(0), make_gpu(1, "GPU-b")])
    fake.facts.environment = {"PATH": f"{fake.bin}:/usr/bin:/bin"}

    seen = gpus.nvidia_smi(fake.facts)

    assert seen.state is State.OK
    assert "driver 550.54.15, 2 GPUs" in seen.found


def test_amd_tools_are_asked_for_their_version(fake: FakeHost) -> None:
    fake.board(1, vendor="0x1002", kind="0x120000")
    without = gpus.amd(fake.facts)
    fake.program("amd-smi", "echo 'AMDSMI Tool: 25.3.0 | ROCm version: 6.4.0'")
    working = gpus.amd(fake.facts)
    fake.program("rocm-smi", "echo 'ERROR: no driver'; exit 1")

    assert without.state is State.MISSING
    assert working == ok("1 boards, amd-smi 25.3.0")
    assert gpus.amd(fake.facts).state is State.WARN


def test_container_toolkit_is_shown_with_version(fake: FakeHost) -> None:
    fake.board(1)
    without = containers.container_toolkit(fake.facts)
    fake.program("nvidia-ctk", "echo 'NVIDIA Container Toolkit CLI version 1.17.8'; echo commit: x")
    no_hook = containers.container_toolkit(fake.facts)
    fake.program(containers.HOOK, ":")
    whole = containers.container_toolkit(fake.facts)
    fake.program("nvidia-ctk", GARBAGE)

    broken = containers.container_toolkit(fake.facts)
    fake.program("nvidia-ctk", "echo 'NVIDIA Container Toolkit CLI version 1.6.9'")
    old = containers.container_toolkit(fake.facts)
    fake.program("nvidia-ctk", "echo 'NVIDIA Container Toolkit CLI version 1.7.0-rc.1'")

    assert without.state is State.MISSING
    assert "nvidia-ctk runtime configure" in without.fix
    assert no_hook.state is State.WARN
    assert whole.state is State.OK
    assert "1.17.8" in whole.found
    assert broken.state is State.WARN
    assert (old.state, "expected 1.7.0 or later" in old.found) == (State.WARN, True)
    assert containers.container_toolkit(fake.facts).state is State.OK


@pytest.mark.parametrize(
    ("name", "text", "want"),
    [
        pytest.param(
            "nvidia.yaml", "cdiVersion: 0.5.0\nx: libcuda.so.570.1.2\n", State.OK, id="ok"
        ),
        pytest.param("nvidia.json", '{"cdiVersion": "0.5.0"}', State.OK, id="json"),
        pytest.param(
            "nvidia.yaml", "cdiVersion: 0.5.0\nlibcuda.so.550.54.15", State.WARN, id="old"
        ),
        pytest.param("nvidia.json", "{", State.WARN, id="garbage"),
        pytest.param("notes.txt", "", State.NOT_APPLICABLE, id="none"),
    ],
)
def test_cdi_specifications_must_match_driver(
    fake: FakeHost, name: str, text: str, want: State
) -> None:
    fake.board(1)
    fake.file("/sys/module/nvidia/version", "570.1.2\n")
    fake.file(f"/etc/cdi/{name}", text)

    assert containers.cdi(fake.facts).state is want


@pytest.mark.parametrize(
    ("message", "environment", "want", "fix"),
    [
        pytest.param("no socket /run/docker.sock", {}, State.MISSING, "docker.io", id="absent"),
        pytest.param(
            "('Connection aborted.', PermissionError(13, 'Permission denied'))",
            {}, State.ERROR, "usermod -aG docker", id="forbidden",
        ),
        pytest.param(
            "Connection refused", {"DOCKER_HOST": "tcp://127.0.0.1:1"}, State.ERROR, "DOCKER_HOST",
            id="chosen, and wrong",
        ),
    ],
)  # fmt: skip
def test_silent_engine_is_shown_with_address(
    fake: FakeHost, message: str, environment: dict[str, str], want: State, fix: str
) -> None:
    fake.facts.environment = {**fake.facts.environment, **environment}
    fake.docker(error=message)

    seen = containers.docker_engine(fake.facts)

    assert seen.state is want
    assert fix in seen.fix


def test_stopped_engine_is_to_be_started(fake: FakeHost) -> None:
    fake.program("dockerd", ":")
    fake.docker(error="no socket /run/docker.sock")

    assert "systemctl start docker" in containers.docker_engine(fake.facts).fix


def test_vfs_engine_warns_and_unknown_is_no_crash(fake: FakeHost) -> None:
    fake.docker(info={"Driver": "vfs"}, version={"Version": "28.5.2"})
    on_vfs = containers.docker_engine(fake.facts)
    fake.docker(info={"Driver": 3, "Runtimes": ["odd"], "DiscoveredDevices": "odd"})

    assert on_vfs.state is State.WARN
    assert containers.docker_engine(fake.facts).state is State.OK
    assert containers.docker_gpus(fake.facts).state is State.NOT_APPLICABLE


def test_engine_without_gpu_support_lacks_toolkit(fake: FakeHost) -> None:
    fake.board(1)
    fake.docker(info={"Runtimes": {"runc": {}}})
    without = containers.docker_gpus(fake.facts)
    fake.docker(info={"Runtimes": {"runc": {}, "nvidia": {}}})

    assert without.state is State.MISSING
    assert containers.docker_gpus(fake.facts).state is State.OK


def test_executor_setting_gives_engine_address() -> None:
    both = {"DOCKER_HOST": "tcp://a:1", "GPUSTEWARD_EXECUTOR_DOCKER_HOST": "unix:///b"}

    assert docker_address(both) == "unix:///b"
    assert docker_address({"DOCKER_HOST": "tcp://a:1"}) == "tcp://a:1"
    assert docker_address({"DOCKER_HOST": ""}) == "unix:///var/run/docker.sock"


MINIKUBE = """\
apiVersion: v1
clusters:
- cluster:
    server: https://10.0.0.1:6443
  name: first
- cluster:
    certificate-authority: /home/x/ca.crt
    extensions:
    - extension:
        provider: minikube.sigs.k8s.io
      name: cluster_info
    server: https://192.168.49.2:8443
  name: minikube
contexts:
- context:
    cluster: first
    user: me
  name: one
- context:
    cluster: minikube
    extensions:
    - extension:
        version: v1.31.0
      name: context_info
    namespace: default
    user: minikube
  name: two
current-context: two
users:
- name: minikube
  user:
    token: "secret: x"
"""


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(MINIKUBE, "https://192.168.49.2:8443", id="as kubectl and minikube write it"),
        pytest.param(
            MINIKUBE.replace("context: two", "context: one"), "https://10.0.0.1:6443", id="other"
        ),
        pytest.param(
            'clusters:\n  - name: "a"\n    cluster:\n      server: "https://h:1"  # here\n',
            "https://h:1",
            id="indented, quoted, without a context",
        ),
        pytest.param(
            '{"clusters": [{"name": "a", "cluster": {"server": "https://j:1"}}]}',
            "https://j:1",
            id="JSON",
        ),
        pytest.param("", None, id="empty"),
        pytest.param("[1, 2]", None, id="other JSON"),
        pytest.param("\x00: - - :\n- -\n  name:\n- x: {", None, id="garbage"),
    ],
)
def test_current_context_gives_server(text: str, want: str | None) -> None:
    assert server_of(text) == want


def test_silent_cluster_is_error_and_none_is_fine(fake: FakeHost) -> None:
    without = cluster(fake.facts)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    config = Path(fake.facts.environment["HOME"]) / ".kube" / "config"
    config.parent.mkdir()
    config.write_text(MINIKUBE.replace("192.168.49.2:8443", f"127.0.0.1:{port}"))

    seen = cluster(fake.facts)

    assert without.state is State.NOT_APPLICABLE
    assert seen.state is State.ERROR
    assert f"127.0.0.1:{port} does not answer" in seen.found


def test_a_data_directory_has_to_be_one(fake: FakeHost) -> None:
    to_be_made = installation.data_directory(fake.facts)
    fake.facts.data_dir.write_text("a file")

    assert to_be_made.state in {State.OK, State.WARN}
    assert "will be made" in to_be_made.found
    assert installation.data_directory(fake.facts).state is State.ERROR


def test_a_full_disk_is_named_with_what_follows(fake: FakeHost) -> None:
    with every_disk_full():
        seen = installation.data_directory(fake.facts)

    assert seen.state is State.ERROR
    assert "the disk is full" in seen.found
    assert "new work is refused" in seen.fix


def test_taken_port_is_shown_with_command(fake: FakeHost) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        fake.facts.environment = {"GPUSTEWARD_TELEMETRY_METRICS_PORT": str(port)}
        seen = installation.ports(fake.facts)

    assert seen.state is State.WARN
    assert f"{port} (Prometheus metrics)" in seen.found
    assert "ss -ltnp" in seen.fix


def test_running_platform_owns_its_ports(fake: FakeHost) -> None:
    directory = DataDirectory(fake.facts.data_dir)
    directory.prepare()
    own = Endpoint(pid=psutil.Process().pid, api_url="http://127.0.0.1:8470")
    directory.write_endpoint(own)

    assert "a platform runs here" in installation.ports(fake.facts).found


def test_warnings_of_readiness_are_printed(fake: FakeHost) -> None:
    body = b'{"ready": true, "warnings": [{"code": "postgres_asynchronous", "message": "no sync"}]}'

    class Gateway(BaseHTTPRequestHandler):
        """Stands for a gateway whose Postgres keeps nothing twice."""

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Gateway) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        directory = DataDirectory(fake.facts.data_dir)
        directory.prepare()
        url = f"http://127.0.0.1:{server.server_port}"
        directory.write_endpoint(Endpoint(pid=psutil.Process().pid, api_url=url))

        told = installation.ports(fake.facts)
        server.shutdown()

    assert told.state is State.WARN
    assert told.found.endswith(": no sync")


def test_stopped_service_of_platform_is_named(fake: FakeHost) -> None:
    directory = DataDirectory(fake.facts.data_dir)
    directory.prepare()
    directory.write_endpoint(Endpoint(pid=os.getpid(), api_url="http://127.0.0.1:8470"))
    states = [
        ChildState(name="gateway", state=ChildLife.READY, changed_at=NOW),
        ChildState(name="scheduler", state=ChildLife.WAITING, changed_at=NOW, last_exit="SIGKILL"),
    ]
    directory.state_path.write_bytes(msgspec.json.encode(states))

    seen = installation.ports(fake.facts)

    assert seen.state is State.WARN
    assert seen.found.endswith("; not ready: scheduler (SIGKILL)")
    assert str(directory.log_path("scheduler")) in seen.fix


@pytest.mark.parametrize(
    ("files", "want"),
    [
        pytest.param(["cgroup.controllers"], "version 2", id="version 2"),
        pytest.param(["cpu/x", "memory/x", "pids/x"], "version 1", id="version 1"),
        pytest.param([], "no control group", id="none"),
    ],
)
def test_both_cgroup_versions_are_known(fake: FakeHost, files: list[str], want: str) -> None:
    for name in files:
        fake.file(f"/sys/fs/cgroup/{name}", "cpuset cpu io memory pids")

    assert want in host.cgroups(fake.facts).found


def ended(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    return int(str(stopped.value.code))


def test_a_pasted_error_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    text = 'docker: Error: could not select device driver "" with capabilities: [[gpu]].'

    code = ended(["doctor", "--explain", text])

    told = capsys.readouterr().out
    assert code == 0
    assert "the NVIDIA container toolkit is missing (gpu_unavailable)" in told
    assert "nvidia-ctk runtime configure" in told
    assert "is repeated once, on another node" in told


def test_log_is_explained_from_stdin_and_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = b"\xff\x00noise\n" * 1000 + b"torch.OutOfMemoryError: CUDA out of memory.\n" + b"x" * 99
    (tmp_path / "engine.log").write_bytes(log)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(log)))

    codes = [
        ended(["doctor", "--json", "--explain", each])
        for each in ("-", str(tmp_path / "engine.log"))
    ]

    answers = capsys.readouterr().out.replace("}\n{", "}\x00{").split("\x00")
    found = [json.loads(answer)["findings"] for answer in answers]
    assert codes == [0, 0]
    assert found[0] == found[1]
    assert [each["kind"] for each in found[0]] == ["gpu_out_of_memory"]
    assert found[0][0]["line"].startswith("torch.OutOfMemoryError")


def test_unknown_error_sets_exit_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ended(["doctor", "--explain", "the moon is full"]) == 5
    assert "none of the known failures" in capsys.readouterr().out


def test_unknown_required_check_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ended(["doctor", "--require", "podman"]) == 2
    assert "docker" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("told", "state", "words"),
    [
        (ClusterReport(ome_versions=None), State.WARN, "may not ask"),
        (ClusterReport(ome_versions=()), State.MISSING, "mode kubernetes"),
        (ClusterReport(ome_versions=("v1alpha1",)), State.ERROR, "expected v1beta1"),
        (ClusterReport(ome_versions=("v1beta1",)), State.OK, "may not read which fields"),
        (ClusterReport(ome_versions=("v1beta1",), unknown_fields={}), State.OK, "every field"),
        (
            ClusterReport(
                ome_versions=("v1beta1",),
                unknown_fields={"servingruntimes": ("spec.engineConfig.volumes",)},
            ),
            State.WARN,
            "does not know servingruntimes: spec.engineConfig.volumes",
        ),
        (ClusterReport(error="Unauthorized: ended"), State.NOT_APPLICABLE, "no cluster"),
    ],
)
def test_what_a_cluster_has_of_ome_is_told(
    fake: FakeHost, told: ClusterReport, state: State, words: str
) -> None:
    kubeconfig = Path(fake.facts.environment["HOME"]) / ".kube/config"
    kubeconfig.parent.mkdir()
    kubeconfig.write_text("clusters:\n- cluster:\n    server: https://h:1\n  name: a\n")
    fake.facts.cluster = LazyValue(lambda: told)

    seen = ome(fake.facts)

    assert seen.state is state
    assert words in f"{seen.found} {seen.fix}"


def test_every_tool_that_measures_is_looked_for() -> None:
    missing = {label: tool.what_is_missing() if tool else None for label, tool in TOOLS.items()}

    assert list(missing.items()) == [(each, ADAPTERS[each].missing()) for each in ADAPTERS]
