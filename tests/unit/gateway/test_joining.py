"""The line that an invited server is given, as a shell runs it."""

import subprocess
from pathlib import Path

from services.gateway.domain.joining import joining_line


def test_line_shows_the_code_to_no_list_of_processes(tmp_path: Path) -> None:
    programs = {
        "uv": 'echo "uv $*" >> "$SEEN"; [ "$1" = tool ] && [ "$2" = dir ] && echo "$BIN" || true',
        "gpusteward": 'echo "gpusteward $* code $GPUSTEWARD_JOIN_CODE" >> "$SEEN"',
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    seen = tmp_path / "seen"
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SEEN": str(seen), "BIN": str(tmp_path)}
    line = joining_line("http://10.0.0.1:8470", "alpha", "s3cret")

    subprocess.run(["sh", "-c", line], env=environment, check=True, timeout=30)

    assert seen.read_text().splitlines() == [
        "uv tool install gpusteward[agent,cluster]",
        "uv tool dir --bin",
        "gpusteward join http://10.0.0.1:8470 alpha code s3cret",
    ]
