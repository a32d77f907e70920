"""The simulated engine: what a task may set of it."""

from typing import Final

from schemas.executor.engine_rules import TaskField
from shared.engines.launch import EngineLaunch
from shared.engines.profile import EngineProfile, OwnServer, StarterTask, StateReset
from shared.engines.ranks import meeting_ranks
from shared.engines.simulated.flags import FLAGS
from shared.engines.task_fields import for_modalities

_MODULE: Final = "shared.engines.simulated.server"
_PROGRAM: Final = ("python3", "-m", _MODULE)

PROFILE: Final = EngineProfile(
    name="simulated",
    title="the simulated engine",
    launch=EngineLaunch(
        program=_PROGRAM,
        image_program=_PROGRAM,
        repository=None,
        tag="latest",
        port=8000,
        tls_flags=("--ssl-keyfile", "--ssl-certfile"),
    ),
    # It calls no server: aiohttp would read the host's certificates, a quarter of its start.
    server=OwnServer(module=_MODULE, flags=FLAGS, needs_certificates=False),
    owned=frozenset({"host", "port", "model", "alias"}),
    task_fields={"tp": TaskField(flag="tp-size"), **for_modalities(embeddings={}, rerank={})},
    rank_flags=meeting_ranks,
    simulated=True,
    starter=StarterTask(
        model="simulated-model",
        parameters="""\
  ttft-seconds: [0.02, 0.04]  # made up: time to the first token
  slots: [1, 2]               # made up: requests served at once
""",
        is_small=True,
    ),
    state_reset=StateReset(path="/reset"),
)
