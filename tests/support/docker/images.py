"""Images for a private engine, made of this host's files, for want of a registry.

`busybox_image`: a shell, 2 MB. `engine_image`: this interpreter and an OpenAI-compatible engine
that is simulated (stub_engine.py beside this file). It is one image under as many names as wanted,
and has no ENTRYPOINT unless one is named, so that any of these may be its command or entrypoint:

    vllm serve MODEL ...                           python3 -m sglang.launch_server --model-path ...
    python3 -m vllm.entrypoints.openai.api_server  llama-server -m ... (also /app/llama-server)
    engine --model ...                             sh -c ...

It listens on `--host` (0.0.0.0) and `--port` (8000), serves `/health`, `/v1/models`,
`/v1/chat/completions`, and tells at `/stub` its argv and environment. Every flag of the process
engine `simulated` counts: `--ttft-seconds`, `--start-delay-seconds`, `--ignore-sigterm`,
`--die-after-requests` and so on. More, as flags or in the variable STUB_ENGINE:

    --stub-exit-after SECONDS [--stub-exit-code N]   --stub-allocate   (until it is killed)
    --stub-lines N   --stub-print TEXT   (standard error)              --stub-hang   (never listens)

Other flags are ignored. SIGTERM ends it at once with 0.
"""

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import docker
import docker.errors
import pytest

from tests.support.imports import imported_names
from tests.support.paths import ROOT

CACHE: Final = Path.home() / ".cache" / "gpusteward-test-images"
UNUSED_SECONDS: Final = 86_400.0
LARGE_BYTES: Final = 1 << 20
REPOSITORY: Final = "gpusteward-test"
SHELL_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BUSYBOX: Final = Path("/bin/busybox")

_STUB: Final = "tests.support.docker.stub_engine"
# What is imported late, or only by what a test runs in the image.
_ALSO_IMPORTED: Final = ("encodings.idna", "encodings.latin_1", "http.server", "urllib.request")
_MODULES: Final = f"""
import importlib, json, site, sys
for name in {[_STUB, *_ALSO_IMPORTED]!r}: importlib.import_module(name)
found = {{getattr(module, "__file__", None) for module in list(sys.modules.values())}}
print(json.dumps([site.getsitepackages()[0], sorted(filter(None, found))]))
"""
_PROGRAM: Final = f"import sys\nfrom {_STUB} import main\nsys.exit(main())\n"


class ImageTar:
    """An image's one layer, being written: files of this host and what they need to run."""

    def __init__(self, file: Path) -> None:
        self._tar = tarfile.open(file, "w")  # noqa: SIM115  # closed by `close`
        self._seen: set[str] = set()

    def add(self, source: Path, target: str | None = None) -> None:
        """One file, or what a link leads to, under its own path or another."""
        path = target or str(source)
        if path in self._seen:
            return
        self._directories(path)
        information = self._tar.gettarinfo(source.resolve(), path.lstrip("/"))
        information.uid = information.gid = 0
        # Also where it is a link to a file that is in the image already.
        information.type, information.linkname = tarfile.REGTYPE, ""
        content = (
            _without_symbols(source) if information.size > LARGE_BYTES else source.read_bytes()
        )
        information.size = len(content)
        self._tar.addfile(information, io.BytesIO(content))

    def add_tree(
        self, source: Path, target: str | None = None, *, without: Sequence[str] = ()
    ) -> None:
        """All files below a directory, except under a name in `without`; there or elsewhere."""
        for directory, names, files in os.walk(source):
            names[:] = sorted(set(names) - set(without))
            for name in sorted(set(files) - set(without)):
                if (path := Path(directory) / name).is_file():
                    to = path if target is None else Path(target) / path.relative_to(source)
                    self.add(path, str(to))

    def add_text(self, target: str, text: str, *, mode: int = 0o644) -> None:
        """A file of our own."""
        self._directories(target)
        content = text.encode()
        information = tarfile.TarInfo(target.lstrip("/"))
        information.size, information.mode, information.mtime = len(content), mode, int(time.time())
        self._tar.addfile(information, io.BytesIO(content))

    def add_link(self, target: str, to: str) -> None:
        """A symbolic link."""
        self._directories(target)
        information = tarfile.TarInfo(target.lstrip("/"))
        information.type, information.linkname = tarfile.SYMTYPE, to
        self._tar.addfile(information)

    def add_directory(self, target: str, *, mode: int = 0o755) -> None:
        """An empty directory."""
        self._directories(target)
        information = tarfile.TarInfo(target.lstrip("/"))
        information.type, information.mode = tarfile.DIRTYPE, mode
        self._tar.addfile(information)

    def add_shell(self) -> None:
        """Busybox, under all its names. Skips the test where there is none."""
        self.add(_busybox())
        self.add_directory("/tmp", mode=0o1777)  # noqa: S108  # the image's own
        for name in _applets():
            self.add_link(f"/bin/{name}", str(BUSYBOX))

    def add_libraries_of(self, programs: Iterable[Path]) -> None:
        """What the dynamic linker would load for these, at the paths where they look for it."""
        listing = subprocess.run(
            ["ldd", *map(str, programs)], capture_output=True, text=True, check=False
        ).stdout
        for library in sorted(set(re.findall(r"(/\S+) \(0x", listing))):
            self.add(Path(os.path.normpath(library)))

    def close(self) -> None:
        self._tar.close()

    def _directories(self, path: str) -> None:
        """The directories above it, open to every user, whatever they are here."""
        parents = [str(parent) for parent in Path(path).parents if str(parent) not in "/."]
        for parent in reversed(parents):
            if parent not in self._seen:
                self._seen.add(parent)
                information = tarfile.TarInfo(parent.lstrip("/"))
                information.type, information.mode = tarfile.DIRTYPE, 0o755
                self._tar.addfile(information)
        self._seen.add(path)


def busybox_image(client: docker.DockerClient) -> str:
    """The tag of an image with a shell. Skips the test where busybox is not installed."""
    tag = f"{REPOSITORY}/busybox:1"
    return tag if _has(client, tag) else import_image(client, tag, _shell_only)


def engine_image(
    client: docker.DockerClient, tag: str | None = None, *, entrypoint: Sequence[str] = ()
) -> str:
    """The tag of the image with the stub engine, see above. Skips the test where it cannot be made.

    With `tag`, the same image under that name too, with an ENTRYPOINT if one is given.
    """
    made = f"{REPOSITORY}/engine:{_engine_key()}"
    if not _has(client, made):
        import_image(client, made, _engine, key=_engine_key())
    if tag is None:
        return made
    if not entrypoint:
        client.images.get(made).tag(tag)
        return tag
    container = client.api.create_container(made, ["true"])
    name, _, version = tag.rpartition(":")
    changes = [f"ENTRYPOINT {json.dumps(list(entrypoint))}", "CMD []"]
    client.api.commit(container["Id"], name, version, changes=changes)
    client.api.remove_container(container["Id"])
    return tag


def import_image(
    client: docker.DockerClient,
    tag: str,
    write: Any,
    *,
    key: str | None = None,
    changes: Sequence[str] = (),
) -> str:
    """Make the image `tag` of what `write(ImageTar)` writes; returns the tag.

    With `key` the layer is kept for the next time that something with the same name and key is
    wanted.
    """
    name, _, version = tag.rpartition(":")
    changes = [f"ENV PATH {SHELL_PATH}", *changes]
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "layer.tar"
        if key is not None:
            CACHE.mkdir(parents=True, exist_ok=True)
            file = CACHE / f"{name.replace('/', '-')}-{key}.tar"
        if not file.exists():
            _forget_unused()
            _write(file, write)
        file.touch()
        answer = client.api.import_image_from_file(str(file), name, version, changes=changes)
    assert "error" not in str(answer), answer
    return tag


def key_of(*files: str | Path) -> str:
    """Return a key that changes with the path and the content of each file.

    A layer holds files at the paths that they have here: one that was made for another checkout
    is of no use to this one.
    """
    digest = hashlib.sha256()
    for file in files:
        digest.update(os.fsencode(file) + b"\0" + Path(file).read_bytes())
    return digest.hexdigest()[:16]


def _write(file: Path, write: Any) -> None:
    # Under another name until it is complete: several test processes may want it at once.
    unfinished = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        with contextlib.closing(ImageTar(unfinished)) as tar:
            write(tar)
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)


def _forget_unused() -> None:
    for kept in CACHE.glob("*.tar*"):
        with contextlib.suppress(FileNotFoundError):
            if kept.stat().st_mtime < time.time() - UNUSED_SECONDS:
                kept.unlink()


def _has(client: docker.DockerClient, tag: str) -> bool:
    try:
        client.images.get(tag)
    except docker.errors.ImageNotFound:
        return False
    return True


def _without_symbols(program: Path) -> bytes:
    """Its content, without what only a debugger reads if there is a tool to take that away."""
    with tempfile.TemporaryDirectory() as directory, contextlib.suppress(OSError):
        stripped = Path(directory) / program.name
        command = ["strip", "--strip-unneeded", "-o", str(stripped), str(program)]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return stripped.read_bytes()
    return program.read_bytes()


def _busybox() -> Path:
    if (
        not BUSYBOX.exists()
        or b"not a dynamic executable"
        not in subprocess.run(["ldd", str(BUSYBOX)], capture_output=True, check=False).stderr
    ):
        pytest.skip("an image needs a static busybox (Debian: busybox-static)")
    return BUSYBOX


@cache
def _applets() -> list[str]:
    listing = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True)
    return [name for name in listing.stdout.split() if name != "busybox"]


def _shell_only(tar: ImageTar) -> None:
    tar.add_shell()


@cache
def _engine_key() -> str:
    """Changes with the interpreter, with what is installed and with our sources."""
    packages = sorted(f"{d.name} {d.version}" for d in importlib.metadata.distributions())
    digest = hashlib.sha256(repr([sys.version, sys.base_prefix, packages]).encode())
    for source in [Path(__file__), *_sources()]:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


@cache
def _sources() -> list[Path]:
    """Our modules that the stub imports, and those that they import."""
    found: set[Path] = set()
    left = [_STUB]
    while left:
        parts = left.pop().split(".")
        prefixes = [Path(*parts[:depth]) for depth in range(1, len(parts) + 1)]
        for file in [f for p in prefixes for f in (p / "__init__.py", p.with_suffix(".py"))]:
            if (path := ROOT / file).is_file() and path not in found:
                found.add(path)
                left += imported_names(path)
    return sorted(found)


def _engine(tar: ImageTar) -> None:
    """The interpreter at its own path, what it imports, and the stub under its names."""
    tar.add_shell()
    interpreter = Path(sys._base_executable).resolve()  # type: ignore[attr-defined]  # noqa: SLF001
    packages, modules = _imported(interpreter)
    tar.add(interpreter)
    tar.add_link("/usr/local/bin/python3", str(interpreter))
    native = [module for module in modules if module.suffix == ".so"]
    tar.add_libraries_of([interpreter, *native])
    for module in modules:
        _add_module(tar, module, packages)
    for source in _sources():
        tar.add(source, f"{packages}/{source.relative_to(ROOT)}")
    for package in ("vllm", "vllm/entrypoints", "vllm/entrypoints/openai", "sglang"):
        tar.add_text(f"{packages}/{package}/__init__.py", "")
    for program in ("vllm/entrypoints/openai/api_server.py", "sglang/launch_server.py"):
        tar.add_text(f"{packages}/{program}", _PROGRAM)
    for name in ("vllm", "engine", "llama-server"):
        script = f"#!/usr/local/bin/python3\n{_PROGRAM}"
        tar.add_text(f"/usr/local/bin/{name}", script, mode=0o755)
    tar.add_link("/app/llama-server", "/usr/local/bin/llama-server")


def _imported(interpreter: Path) -> tuple[str, list[Path]]:
    """Where the interpreter looks for packages, and the files of what the stub imports."""
    installed = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    answer = subprocess.run(
        [interpreter, "-c", _MODULES],
        env={"PYTHONPATH": os.pathsep.join([str(ROOT), *installed]), "PATH": SHELL_PATH},
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    packages, files = json.loads(answer)
    outside = [
        path for path in map(Path, files) if not path.is_relative_to(ROOT) or ".venv" in path.parts
    ]
    return packages, outside


def _add_module(tar: ImageTar, module: Path, packages: str) -> None:
    target = str(module)
    for folder in ("site-packages", "dist-packages"):
        if f"/{folder}/" in target:
            target = f"{packages}/{target.partition(f'/{folder}/')[2]}"
    tar.add(module, target)
    compiled = Path(importlib.util.cache_from_source(str(module)))
    if module.suffix == ".py" and compiled.exists():
        tar.add(compiled, importlib.util.cache_from_source(target))


def stub_engines_file(directory: Path) -> str:
    """Lets a stub in an image of vLLM be given flags that only the stub has."""
    path = directory / "stub_engines.toml"
    directory.mkdir(parents=True, exist_ok=True)
    path.write_text('[engines.vllm]\nallow = ["*"]\n')
    return str(path)
