"""Every tool that agents get."""

from typing import Final

from services.cli.mcp_server.changing_tools import CHANGING
from services.cli.mcp_server.reading_tools import READING

TOOLS: Final = {**READING, **CHANGING}
