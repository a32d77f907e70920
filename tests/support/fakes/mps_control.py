"""A program in place of nvidia-cuda-mps-control, because the hardware is missing.

It keeps what NVIDIA documents of the real one: `-d` starts a daemon in the background that listens
at `control` in CUDA_MPS_PIPE_DIRECTORY, refuses a second one there and logs to control.log in
CUDA_MPS_LOG_DIRECTORY; without options it passes commands from standard input to that daemon.
`quit` ends it. It shares no GPU and starts no server.
"""

import sys
from pathlib import Path

_PROGRAM = """#!{python} -SE
import os, socket, sys
pipe_dir = os.environ["CUDA_MPS_PIPE_DIRECTORY"]
path = os.path.join(pipe_dir, "control")


def connected():
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client.settimeout(10)
    try:
        client.connect(path)
    except OSError:
        return None
    return client


def serve():
    if connected() is not None:
        sys.exit("An instance of this daemon is already running")
    if os.path.exists(path):
        os.unlink(path)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.bind(path)
    server.listen()
    if os.fork():
        os._exit(0)
    os.setsid()
    with open(os.path.join(os.environ["CUDA_MPS_LOG_DIRECTORY"], "control.log"), "a") as log:
        print("Start", os.environ["CUDA_VISIBLE_DEVICES"], file=log)
    while True:
        client, _ = server.accept()
        command = client.recv(100)
        client.close()
        if command == b"quit":
            os.unlink(path)
            os._exit(0)


if sys.argv[1:] == ["-d"]:
    serve()
for line in sys.stdin:
    client = connected()
    if client is None:
        sys.exit("Cannot find MPS control daemon process")
    client.send(line.strip().encode())
    client.recv(1)
"""


def write_mps_control(directory: Path) -> Path:
    """The executable."""
    program = directory / "nvidia-cuda-mps-control"
    program.write_text(_PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    return program
