"""An image registry on loopback with one image, which may be slow, or lack its tag.

It speaks as much of the distribution protocol as pulling needs (manifest schema 2).
"""

import gzip
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import docker

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
NAME = "team/engine"
TAG = "1"
CHUNK_BYTES = 64 * 1024


@dataclass(slots=True)
class Registry:
    """`repository` is what to pull. The end of a layer waits for `may_go_on`: of one, because
    Docker tells its progress every 512 KB.
    """

    blobs: dict[str, bytes]
    manifest: bytes
    port: int = 0
    may_go_on: threading.Event = field(default_factory=threading.Event)
    blobs_asked: list[str] = field(default_factory=list)

    @property
    def repository(self) -> str:
        return f"127.0.0.1:{self.port}/{NAME}"


class RegistryServer(ThreadingHTTPServer):
    """Its handlers find the registry here."""

    daemon_threads = True

    def __init__(self, registry: Registry) -> None:
        super().__init__(("127.0.0.1", 0), RegistryHandler)
        self.registry = registry
        registry.port = self.server_address[1]


class RegistryHandler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: RegistryServer

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def do_GET(self) -> None:
        self._answer(has_body=True)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base names it so
        """Nothing is printed."""

    def _answer(self, *, has_body: bool) -> None:
        registry = self.server.registry
        kind, _, reference = self.path.removeprefix(f"/v2/{NAME}/").partition("/")
        if self.path == "/v2/":
            self._send(b"{}", "application/json", has_body=has_body)
        elif kind == "manifests" and (reference == TAG or reference.startswith("sha256:")):
            self._send(registry.manifest, MANIFEST, has_body=has_body)
        elif kind == "blobs" and reference in registry.blobs:
            registry.blobs_asked.append(reference)
            self._send_slowly(registry.blobs[reference])
        else:
            error = {"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}
            body = json.dumps(error).encode()
            self._send(body, "application/json", has_body=has_body, status=404)

    def _send(self, body: bytes, kind: str, *, has_body: bool, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Docker-Content-Digest", _digest(body))
        self.end_headers()
        if has_body:
            self.wfile.write(body)

    def _send_slowly(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body[:-CHUNK_BYTES])
            self.wfile.flush()
            if len(body) > CHUNK_BYTES:
                self.server.registry.may_go_on.wait()
            self.wfile.write(body[-CHUNK_BYTES:])
        except OSError:
            self.close_connection = True


@contextmanager
def image_registry(client: docker.DockerClient, image: str) -> Iterator[Registry]:
    """Serves `image` of this engine under another name."""
    registry = _registry(b"".join(client.images.get(image).save()))
    server = RegistryServer(registry)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        registry.may_go_on.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _registry(saved: bytes) -> Registry:
    """What `docker save` gives, as a registry keeps it."""
    with tarfile.open(fileobj=io.BytesIO(saved)) as tar:
        (image,) = json.loads(_read(tar, "manifest.json"))
        config = _read(tar, image["Config"])
        layers = [gzip.compress(_read(tar, name), 1) for name in image["Layers"]]
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": _described(config, CONFIG),
        "layers": [_described(layer, LAYER) for layer in layers],
    }
    return Registry(
        blobs={_digest(blob): blob for blob in (config, *layers)},
        manifest=json.dumps(manifest).encode(),
    )


def _read(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    assert file is not None
    return file.read()


def _described(blob: bytes, kind: str) -> dict[str, Any]:
    return {"mediaType": kind, "size": len(blob), "digest": _digest(blob)}


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"
