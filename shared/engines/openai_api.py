"""The name of an engine of which nothing is known but that it speaks OpenAI's API."""

from typing import Final

OPENAI: Final = "openai"
