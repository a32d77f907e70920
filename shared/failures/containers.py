"""Texts of container engines, of the NVIDIA container toolkit and of the driver's own tools.

Docker's were provoked on 20.10.24, 26.1.5 and 28.5.2 where the source says `measured`; the others
are quoted from public reports of the program named.
"""

from functools import partial
from typing import Final

from schemas.executor.attempts import FailureKind
from shared.known_failure import Known, known_failure

_gpu_unavailable = partial(known_failure, FailureKind.GPU_UNAVAILABLE)
_image_missing = partial(known_failure, FailureKind.IMAGE_MISSING)

_TOOLKIT_INSTALL: Final = (
    "install the package `nvidia-container-toolkit` (NVIDIA's repository), then "
    "`sudo nvidia-ctk runtime configure --runtime=docker` and `sudo systemctl restart docker`"
)

GPU_ACCESS: Final[tuple[Known, ...]] = (
    _gpu_unavailable(
        "the NVIDIA container toolkit is gone while Docker still counts on it",
        f"{_TOOLKIT_INSTALL}; Docker looks for the hook in the PATH that dockerd was started with",
        pattern=r'"nvidia-container-runtime(-hook)?": executable file not found',
        example='exec: "nvidia-container-runtime-hook": executable file not found in $PATH',
        source="Docker 20.10.24, measured: hook removed while dockerd ran",
    ),
    _gpu_unavailable(
        "this Docker does not inject CDI devices",
        'Docker 25 to 27 need {"features": {"cdi": true}} in /etc/docker/daemon.json and '
        "`sudo systemctl restart docker`; 28 has it on, before 25 there is none",
        pattern=r'could not select device driver "cdi"',
        example='could not select device driver "cdi" with capabilities: []',
        source="Docker 20.10.24 and 26.1.5 without the feature, measured",
    ),
    _gpu_unavailable(
        "Docker has no way to give a container GPUs: the NVIDIA container toolkit is missing",
        f"{_TOOLKIT_INSTALL}; check with `docker run --rm --gpus all ubuntu nvidia-smi`",
        pattern=r"could not select device driver|no known GPU vendor found",
        example='could not select device driver "" with capabilities: [[gpu]]',
        source="Docker 20.10.24, 26.1.5, 28.5.2, measured; `no known GPU vendor found` Docker 29",
    ),
    _gpu_unavailable(
        "the CDI specification does not know the granted GPU",
        "`sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml` writes it anew, which a new "
        "driver or a change of MIG makes necessary; `nvidia-ctk cdi list` shows what it names",
        pattern=r"unresolvable CDI devices|CDI device injection failed",
        example="CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=7",
        source="Docker 26.1.5, 28.5.2, measured",
    ),
    _gpu_unavailable(
        "Docker does not know the runtime `nvidia`",
        "`sudo nvidia-ctk runtime configure --runtime=docker` and `sudo systemctl restart docker`; "
        "`docker info --format '{{json .Runtimes}}'` then names it",
        pattern=r"unknown (or invalid )?runtime (specified|name:?) nvidia",
        example="Unknown runtime specified nvidia",
        source="Docker 20.10.24, measured; `unknown or invalid runtime name: nvidia` from 23 on",
    ),
    _gpu_unavailable(
        "the NVIDIA driver was updated, and the old one is still loaded",
        "`sudo reboot`, or, with nothing on the GPUs, unload it: `sudo systemctl stop "
        "nvidia-persistenced; sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia; nvidia-smi`",
        pattern=r"driver/library version mismatch",
        example=(
            "nvidia-container-cli: initialization error: nvml error: driver/library version "
            "mismatch: unknown"
        ),
        source="nvidia-container-toolkit #394, nvidia-smi",
    ),
    _gpu_unavailable(
        "the image needs a newer NVIDIA driver than this node has",
        "update the node's driver, or take an image for an older CUDA; `nvidia-smi` names the "
        "newest CUDA that the driver serves",
        pattern=r"requirement error: unsatisfied condition: (cuda|driver)",
        example=(
            "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please "
            "update your driver to a newer version"
        ),
        source="nvidia-container-toolkit 1.17",
    ),
    _gpu_unavailable(
        "the node has no GPU of the granted id",
        "`nvidia-smi -L` lists those there are; a GPU that fell off the bus, or a MIG instance "
        "that was destroyed, is no longer among them",
        pattern=r"nvidia-container-cli: device error: .*unknown device",
        example="nvidia-container-cli: device error: GPU-a: unknown device: unknown",
        source="nvidia-container-toolkit 1.17",
    ),
    _gpu_unavailable(
        "the container toolkit finds no NVIDIA driver on the node",
        "install the driver (`sudo ubuntu-drivers install --gpgpu` on Ubuntu), "
        "`sudo modprobe nvidia`, then `nvidia-smi`",
        pattern=r"load library failed: libnvidia-ml\.so|nvidia-container-cli: .*driver not loaded",
        example=(
            "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: "
            "cannot open shared object file: no such file or directory: unknown"
        ),
        source="nvidia-container-toolkit 1.x",
    ),
    _gpu_unavailable(
        "the NVIDIA driver of the node is not running",
        "`sudo modprobe nvidia` and `sudo dmesg | grep -i nvrm` say why; after a new kernel the "
        "module has to be built again: `dkms status`, `sudo dkms autoinstall`",
        pattern=r"couldn't communicate with the NVIDIA driver|NVML: Driver Not Loaded",
        example=(
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make "
            "sure that the latest NVIDIA driver is installed and running."
        ),
        source="nvidia-smi",
    ),
    _gpu_unavailable(
        "a GPU is lost: the driver cannot reach it any more",
        "`sudo dmesg | grep -i xid` tells why (79: fallen off the bus); `gpusteward cordon NODE`, "
        "then `sudo reboot`, and if it comes again have the board checked",
        pattern=r"GPU is lost|unable to determine the device handle|fallen off the bus",
        example="Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost.",
        source="nvidia-smi, NVRM Xid 79",
    ),
    _gpu_unavailable(
        "a running container has lost its access to the GPUs",
        "`systemctl daemon-reload` takes it away where Docker manages cgroups by systemd: set "
        '{"exec-opts": ["native.cgroupdriver=cgroupfs"]} in /etc/docker/daemon.json, restart '
        "Docker, or use CDI",
        pattern=r"failed to initialize NVML: Unknown Error",
        example="Failed to initialize NVML: Unknown Error",
        source="nvidia-smi in a container, nvidia-container-toolkit #48",
    ),
    _gpu_unavailable(
        "nvidia-smi is not there, or finds no GPU",
        "install the NVIDIA driver and look for the board with `lspci | grep -i nvidia`; without "
        "one GPU Steward can make up a fleet: `gpusteward up --simulate`",
        pattern=(
            r"nvidia-smi:? (is )?(command )?not (found|available)|^No devices were found"
            r"|failed to initialize NVML"
        ),
        example="nvidia-smi: command not found",
        source="shells; nvidia-smi",
    ),
    _gpu_unavailable(
        "the NVIDIA container toolkit failed while a container was being started",
        "`nvidia-smi` on the node tells whether the driver works, `sudo nvidia-container-cli -k -d "
        "/dev/tty info` what the toolkit makes of it",
        pattern=r"nvidia-container-cli: |error running (prestart )?hook #\d+",
        example=(
            "OCI runtime create failed: container_linux.go:380: starting container process caused: "
            "error running hook #0: error running hook: exit status 1, stdout: , stderr: "
        ),
        source="Docker 20.10.24 with a hook that exits 1, measured",
    ),
    _gpu_unavailable(
        "no node has as many free GPUs as were asked for",
        "`gpusteward why RESERVATION` and `gpusteward availability` say what stands in the way and "
        "what would help; in Kubernetes `kubectl describe node` shows what holds nvidia.com/gpu",
        pattern=r"insufficient (nvidia\.com/|amd\.com/)?gpus?\b",
        example="0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        source="kube-scheduler",
    ),
)

ENGINE_ACCESS: Final[tuple[Known, ...]] = (
    known_failure(
        FailureKind.RUNTIME_UNAVAILABLE,
        "the user may not use Docker's socket",
        "`sudo usermod -aG docker $USER`, then log in again (members of that group are as good as "
        "root), or run the agent as a user who may",
        pattern=(
            r"permission denied while trying to connect to the docker"
            r"|connection aborted.*PermissionError\(13"
        ),
        example=(
            "permission denied while trying to connect to the Docker daemon socket at "
            "unix:///var/run/docker.sock"
        ),
        source="Docker 20.10 to 28, docker SDK 7",
    ),
    known_failure(
        FailureKind.RUNTIME_UNAVAILABLE,
        "the Docker client and the daemon are too far apart in version",
        "update the older one; for a client that may speak an older API set DOCKER_API_VERSION to "
        "the daemon's, which `docker version` shows",
        pattern=r"client version [\d.]+ is too (new|old)",
        example="client version 1.52 is too new. Maximum supported API version is 1.41",
        source="Docker 20.10; `too old` from 29 on, which asks for 1.44",
    ),
    known_failure(
        FailureKind.RUNTIME_UNAVAILABLE,
        "the Docker daemon does not answer",
        "`sudo systemctl start docker`, `journalctl -u docker -n 50` if it ends again; DOCKER_HOST "
        "must name the right socket",
        pattern=(
            r"cannot connect to the docker daemon|while fetching server API version"
            r"|connection aborted\.', (FileNotFoundError|ConnectionRefusedError)"
        ),
        example=(
            "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker "
            "daemon running?"
        ),
        source="docker CLI 28.2.2 and docker SDK 7.2, measured",
    ),
    known_failure(
        FailureKind.INTERNAL,
        "a container of that name is already there",
        "`docker ps -a` shows it and `docker rm -f NAME` removes it, if it is nobody else's",
        pattern=r"the container name \S+ is already in use",
        example='Conflict. The container name "/engine" is already in use by container "0ae1".',
        source="Docker 20.10.24, measured",
    ),
    known_failure(
        FailureKind.BAD_PARAMETER,
        "the container's memory limit is below the least that Docker allows",
        "allow it at least 6 MB; an engine wants as much as its model takes on the host",
        pattern=r"minimum memory limit allowed",
        example="Minimum memory limit allowed is 6MB",
        source="Docker 20.10.24, measured",
    ),
    known_failure(
        FailureKind.INTERNAL,
        "a container was asked for by a number of GPUs and by their ids at once",
        "give one of the two, `device_ids` or `count`",
        pattern=r"cannot set both Count and DeviceIDs",
        example="cannot set both Count and DeviceIDs on device request",
        source="Docker 20.10.24, 26.1.5, 28.5.2, measured",
    ),
)

IMAGES: Final[tuple[Known, ...]] = (
    known_failure(
        FailureKind.IMAGE_PULL_FAILED,
        "the registry has had enough requests from here for a while",
        "`docker login` raises the limit; a mirror in /etc/docker/daemon.json (registry-mirrors) "
        "avoids it",
        pattern=r"toomanyrequests|reached your (unauthenticated )?pull rate limit",
        example="toomanyrequests: You have reached your unauthenticated pull rate limit.",
        source="Docker Hub",
    ),
    _image_missing(
        "there is no such image, or it may not be read without a login",
        "check the name with `docker pull IMAGE`; for a private one `docker login REGISTRY` first",
        pattern=(
            r"pull access denied|repository does not exist|requested access to the resource is "
            r"denied|unauthorized: (authentication required|access to)|no basic auth credentials"
        ),
        example=(
            "pull access denied for vllm/no-such, repository does not exist or may require 'docker "
            "login': denied: requested access to the resource is denied"
        ),
        source="Docker 20.10 to 28",
    ),
    _image_missing(
        "the image has no such tag, or is not on this node",
        "look the tag up at its registry; an image of your own has to be loaded on every node: "
        "`docker load -i FILE`",
        pattern=r"manifest unknown|manifest for \S+ not found|no such image|tag does not exist",
        example="manifest for vllm/vllm-openai:v99 not found: manifest unknown: manifest unknown",
        source="Docker 20.10.24, measured for `No such image`",
    ),
    _image_missing(
        "there is no such image at its registry",
        "look its name and tag up at the registry, then correct `runtime_image_tag` or the "
        "executor's engines file",
        pattern=r"failed to resolve reference .*: not found",
        example=(
            'failed to pull and unpack image "docker.io/vllm/vllm-openai:v99": failed to resolve '
            'reference "docker.io/vllm/vllm-openai:v99": docker.io/vllm/vllm-openai:v99: not found'
        ),
        source="containerd 1.7 and 2.x, as a kubelet's ErrImagePull says it",
    ),
    _image_missing(
        "the image is made for another processor",
        "`docker image inspect IMAGE --format {{.Architecture}}` against `uname -m`; take a tag "
        "for this one",
        pattern=r"no matching manifest for|exec format error",
        example="exec /usr/bin/python3: exec format error",
        source="Docker 20.10 to 28; execve(2)",
    ),
    _image_missing(
        "that is no name of an image",
        "expected NAME[:TAG], in lower case, such as vllm/vllm-openai:v0.10.0",
        pattern=r"invalid reference format|repository name must be lowercase",
        example="invalid reference format: repository name must be lowercase",
        source="Docker 20.10.24, measured",
    ),
    known_failure(
        FailureKind.IMAGE_PULL_FAILED,
        "the registry could not be reached, or broke off",
        "check `curl -I https://registry-1.docker.io/v2/` on the node; behind a proxy dockerd "
        "needs HTTPS_PROXY of its own; without any network load the image with `docker load`",
        pattern=(
            r"Get \"?https?://\S+/v2/|ErrImagePull|ImagePullBackOff|failed to (resolve|do) "
            r"reference|error pulling image|filesystem layer verification failed"
            r"|TLS handshake timeout|x509: certificate|proxyconnect tcp"
            r"|dial tcp: lookup \S+.*(no such host|try again|timeout)"
        ),
        example=(
            'Get "https://registry-1.docker.io/v2/": dial tcp: lookup registry-1.docker.io: no '
            "such host"
        ),
        source="Docker 20.10.24, measured without a network; kubelet",
    ),
    known_failure(
        FailureKind.ENGINE_MISSING,
        "the image does not have the program that was to be started",
        "take the image of that engine, or one with the program on its PATH; "
        "`docker run --rm --entrypoint sh IMAGE -c 'command -v PROGRAM'`",
        pattern=r'exec: "[^"]+": (executable file not found|stat |permission denied)',
        example='exec: "vllm": executable file not found in $PATH: unknown',
        source="Docker 20.10.24, measured",
    ),
    known_failure(
        FailureKind.MODEL_MISSING,
        "the model's directory is not on this node",
        "copy or mount it there, below one of the node's model roots "
        "(GPUSTEWARD_EXECUTOR_MODEL_ROOTS)",
        pattern=r"bind source path does not exist|creating mount source path",
        example='invalid mount config for type "bind": bind source path does not exist: /models/x',
        source="Docker 20.10.24, measured",
    ),
)
