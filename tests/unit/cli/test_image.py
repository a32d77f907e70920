"""What the image is built from, without a container engine."""

import re
import tomllib
from pathlib import Path

from click.testing import CliRunner

from services.cli.commands.platform.compose import compose
from services.cli.local_platform.image import is_installed_from_wheel
from tests.support.paths import ROOT

CONTAINERFILE = (ROOT / "compose/Containerfile").read_text()


def test_label_has_the_version_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert re.findall(r"^ARG VERSION=(.*)$", CONTAINERFILE, re.MULTILINE) == [project["version"]]
    assert project["description"] in CONTAINERFILE


def test_image_takes_nothing_of_a_checkout() -> None:
    copied = re.findall(r"^COPY (?!--from)(\S+)", CONTAINERFILE, re.MULTILINE)

    assert copied == ["requirements-image.lock", "requirements.lock", "dist/gpusteward-*.whl"]


def test_checkout_builds_its_image_by_make(tmp_path: Path) -> None:
    assert not is_installed_from_wheel()

    printed = CliRunner().invoke(compose, ["init", str(tmp_path / "steward")]).output

    assert f"make -C {ROOT} image IMAGE=gpusteward TARGET=slim" in printed
    assert "image:" in (ROOT / "Makefile").read_text()
