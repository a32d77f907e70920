"""How an engine is started: by hand, and in its own image."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from shared.engines.arguments import arguments_of

# Of a container, whose published port is on loopback alone, or of whoever types the command.
ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104


class EngineLaunch(Struct, frozen=True, kw_only=True):
    """`program` is what a person types. In the image `image_program` comes after `entrypoint`, or
    after the image's own where that is None. `repository` None: no image is known.

    `model_flag` None puts the model first; `hub_flag` is the one for a model of a hub, as in
    `owner/name`, where it differs. `plain_switches` are those without a `--no-` form, although
    others have one. `has_underscores`: its flags are spelled with these. `tls_flags` name the files
    of its key and of its certificate, with which it serves HTTPS alone; None: it speaks plain HTTP.
    """

    program: tuple[str, ...]
    repository: str | None
    tag: str
    port: int
    entrypoint: tuple[str, ...] | None = None
    image_program: tuple[str, ...] = ()
    model_flag: str | None = "--model"
    hub_flag: str | None = None
    name_flag: str | None = "--served-model-name"
    host_flag: str = "--host"
    port_flag: str = "--port"
    has_negative_switches: bool = True
    plain_switches: frozenset[str] = frozenset()
    has_underscores: bool = False
    readiness_path: str = "/health"
    tls_flags: tuple[str, str] | None = None

    def model_arguments(self, model: str) -> list[str]:
        is_of_hub = self.hub_flag is not None and self.knows_where(model)
        flag = self.hub_flag if is_of_hub and not model.startswith("/") else self.model_flag
        return [model] if flag is None else [flag, model]

    def knows_where(self, model: str) -> bool:
        """True if the engine finds the model by this text, on another machine too."""
        return self.hub_flag is None or "/" in model

    def arguments(self, parameters: Mapping[str, Any]) -> list[list[str]]:
        """Return the command-line arguments of each parameter that an experiment ran with."""
        return [
            arguments_of(
                spelling,
                value,
                has_negative_switches=self.has_negative_switches,
                plain_switches=self.plain_switches,
                has_underscores=self.has_underscores,
            )
            for spelling, value in parameters.items()
            if value is not None
        ]
