"""The line that an invited server is given."""

import shlex
from typing import Final

from schemas.gateway.joining import AUTHORITY_VARIABLE, CODE_VARIABLE

EXTRAS: Final = "'gpusteward[agent,cluster]'"


def joining_line(api_url: str, node_id: str, code: str, authority: str = "") -> str:
    """Return the one line to type on a new server: it installs, joins and starts.

    The code goes by the environment: arguments of a process are read by everybody on its host. With
    it goes the `authority` of the gateway's certificate, so that the code is shown to that alone.
    """
    trust = f"{AUTHORITY_VARIABLE}={authority} " if authority else ""
    return (
        f"export {trust}{CODE_VARIABLE}={code}; if command -v uv >/dev/null; then "
        f'uv tool install {EXTRAS} && PATH="$(uv tool dir --bin):$PATH"; '
        f"else python3 -m pip install {EXTRAS}; fi && "
        f"gpusteward join {shlex.quote(api_url)} {node_id}; unset {CODE_VARIABLE}"
    )
