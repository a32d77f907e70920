"""CUDA versions as drivers, libraries, packages, images and requirements spell them."""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from schemas.errors import ErrorCode
from shared.errors import RefusedError

# The CUDA of each driver branch, oldest first. NVIDIA, CUDA Toolkit Release Notes, "CUDA Toolkit
# and Corresponding Driver Versions"; 565, which no toolkit came with, by its own nvidia-smi.
CUDA_BY_BRANCH: Final = (
    *((384, (9, 0)), (390, (9, 1)), (396, (9, 2))),
    *((410, (10, 0)), (418, (10, 1)), (440, (10, 2))),
    *((450, (11, 0)), (455, (11, 1)), (460, (11, 2)), (465, (11, 3)), (470, (11, 4))),
    *((495, (11, 5)), (510, (11, 6)), (515, (11, 7)), (520, (11, 8))),
    *((525, (12, 0)), (530, (12, 1)), (535, (12, 2)), (545, (12, 3)), (550, (12, 4))),
    *((555, (12, 5)), (560, (12, 6)), (565, (12, 7)), (570, (12, 8)), (575, (12, 9))),
    *((580, (13, 0)), (590, (13, 1))),
)
_SMALLEST_BRANCH: Final = 100  # CUDA itself is far from it

_NUMBER: Final = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.\d{1,6})*")
# The first that is found tells it: what demands or is the library before what is named after it.
_TELLING: Final = (
    re.compile(r"(?:^|[\s=,])cuda>=(\d{1,2})\.(\d{1,2})"),
    re.compile(r"libcudart\.so\.(\d{1,2})\.(\d{1,2})"),
    re.compile(r"cuda-runtime(?:-cu\d+)?[\s=@(]+(\d{1,2})\.(\d{1,2})"),
    re.compile(r"cuda(?:[_ ]version)?[-_:=v\s]*(\d{1,2})\.(\d{1,2})"),
    re.compile(r"(?<![a-z0-9])cu(1\d|[89])(\d)(?!\d)"),
)
# Of an image. What the container toolkit demands of the driver goes before what is written about
# it.
_IMAGE_VARIABLES: Final = ("NVIDIA_REQUIRE_CUDA", "CUDA_VERSION")
_IMAGE_LABEL: Final = "com.nvidia.cuda.version"
_DRIVER_VERSION: Final = re.compile(r"\d{3,4}\.\d{1,4}(?:\.\d{1,4})?")


class CudaVersion(NamedTuple):
    """Patches never decide what is compatible."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


def driver_cuda(text: str) -> CudaVersion:
    """The CUDA that a driver serves, told by the driver's version or by the CUDA version itself.

    That of a branch newer than the table is at least the newest known. Raises RefusedError.
    """
    match = _NUMBER.fullmatch(text.strip())
    number = int(match[1]) if match is not None else 0
    if match is not None and number < _SMALLEST_BRANCH:
        return CudaVersion(number, int(match[2]))
    served = [cuda for branch, cuda in CUDA_BY_BRANCH if branch <= number]
    if not served:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected a driver's version (550.144.03) or its CUDA (12.4), got {text!r}",
            path="$.driver",
        )
    return CudaVersion(*served[-1])


def runtime_cuda(text: str, *, path: str = "$.runtime") -> CudaVersion:
    """The CUDA that something was built with.

    `12.4`, `cu121`, `libcudart.so.12.4.127`, `/usr/local/cuda-12.4/...`, `cuda>=12.4 brand=...` of
    NVIDIA_REQUIRE_CUDA, `nvidia/cuda:12.4.1-runtime`, `vllm:v0.8.5-cu121`. Raises RefusedError.
    """
    requirement = text.strip().lower()
    if match := _NUMBER.fullmatch(requirement):
        return CudaVersion(int(match[1]), int(match[2]))
    for pattern in _TELLING:
        if match := pattern.search(requirement):
            return CudaVersion(int(match[1]), int(match[2]))
    raise RefusedError(
        ErrorCode.BAD_REQUEST,
        f"{text!r} does not tell its CUDA version; an image does in its environment: `docker image"
        " inspect --format '{{.Config.Env}}' IMAGE` shows NVIDIA_REQUIRE_CUDA or CUDA_VERSION",
        path=path,
    )


def image_cuda(reference: str, variables: Iterable[str], labels: Mapping[str, str]) -> str | None:
    """The CUDA that an image is of, by its environment (NAME=VALUE), its labels, or its tag.

    None if none of them names it.
    """
    environment = dict(variable.partition("=")[::2] for variable in variables)
    requirements = (*(environment.get(name) for name in _IMAGE_VARIABLES), labels.get(_IMAGE_LABEL))
    for text in (*requirements, f"image {reference}"):
        if text:
            try:
                return str(runtime_cuda(text))
            except RefusedError:
                continue
    return None


def cuda_version(text: str | None) -> CudaVersion | None:
    """Return `12.4` as a version; None for what is no version of CUDA, as a driver's own is."""
    match = _NUMBER.fullmatch(text.strip()) if text is not None else None
    if match is None or int(match[1]) >= _SMALLEST_BRANCH:
        return None
    return CudaVersion(int(match[1]), int(match[2]))


def cuda_of_driver(version: str | None) -> str | None:
    """Return the CUDA version of an NVIDIA driver, for sources that report only the driver; None if
    unknown.
    """
    if version is None or not _DRIVER_VERSION.fullmatch(version.strip()):
        return None
    try:
        return str(driver_cuda(version))
    except RefusedError:
        return None
