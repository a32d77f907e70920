"""What this host lacks to run an engine as a process."""

import importlib.util
import shutil
import sys

from shared.engines.profile import EngineProfile


def find_missing(profile: EngineProfile) -> str | None:
    """Return what to install before this host can run the engine; None if nothing."""
    need = profile.requirement
    if need is None:
        return None
    if need.program is not None and shutil.which(need.program) is None:
        absent = f"no `{need.program}` on PATH"
        return f"{profile.title} is not installed: {absent}; run: {need.install}"
    if need.module is not None and importlib.util.find_spec(need.module) is None:
        return f"{profile.title} is not installed for {sys.executable}; run: {need.install}"
    return None
