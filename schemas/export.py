"""Writes the published forms of the messages: `python -m schemas.export DIR`.

`schemas/exported` holds them for readers and for the web UI; a test keeps it current.
"""

import json
import sys
from pathlib import Path

from schemas.formats.asyncapi import asyncapi
from schemas.formats.endpoints_typescript import endpoints_typescript
from schemas.formats.json_schema import json_schema
from schemas.formats.task_file_schema import task_file_schema
from schemas.formats.typescript import typescript


def export_files() -> dict[str, str]:
    """The files by name. The same messages give the same text."""
    return {
        "schema.json": json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n",
        "asyncapi.json": json.dumps(asyncapi(), indent=2, ensure_ascii=False) + "\n",
        "messages.ts": typescript(),
        "endpoints.ts": endpoints_typescript(),
        "task-file.schema.json": json.dumps(task_file_schema(), indent=2, ensure_ascii=False)
        + "\n",
    }


def main(arguments: list[str]) -> int:
    """Write the files into the directory named; exit status 2 if none was."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m schemas.export DIR\n")
        return 2
    directory = Path(arguments[0])
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in export_files().items():
        (directory / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
