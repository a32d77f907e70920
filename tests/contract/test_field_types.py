"""Types of fields that msgspec can prepare for as long as a service runs."""

import subprocess
import sys

from tests.support.paths import ROOT

# msgspec 0.22 frees the pattern of a text once too often where the text is in a union with a list
# or a mapping: the process ends after some dozen uses, so this is tried in one of its own.
PREPARE_OFTEN = """
import faulthandler, importlib, pkgutil, typing
import msgspec, schemas

faulthandler.enable()
for module in pkgutil.walk_packages(schemas.__path__, "schemas."):
    importlib.import_module(module.name)
known, structs = set(), [msgspec.Struct]
while structs:
    struct = structs.pop()
    structs += struct.__subclasses__()
    if not struct.__module__.startswith("schemas."):
        continue
    hints = typing.get_type_hints(struct, include_extras=True)
    for name in struct.__struct_fields__:
        hint = hints[name]
        if repr(hint) in known or isinstance(hint, typing.TypeVar):
            continue
        known.add(repr(hint))
        print(struct.__name__, name, flush=True)
        for _ in range(200):
            msgspec.json.Decoder(hint)
"""


def test_every_field_type_is_prepared_any_number_of_times() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PREPARE_OFTEN], cwd=ROOT, capture_output=True, text=True, timeout=120
    )

    fields = ended.stdout.splitlines()
    assert ended.returncode == 0, f"at {fields[-1:]}: {ended.stderr[-500:]}"
    assert "EndpointConfig url" in fields
