"""A file that a load is made of: by path, by address, or uploaded."""

from typing import Annotated

from msgspec import Meta

from schemas.base import END, Name, line
from schemas.task.part import TaskPart

SHA256_PATTERN = rf"^[0-9a-f]{{64}}{END}"

Place = Annotated[str, line(min_length=1, max_length=2048)]
Sha256 = Annotated[str, Meta(pattern=SHA256_PATTERN, description="64 hexadecimal digits, in small")]


class SourceFile(TaskPart, frozen=True, kw_only=True):
    """A file by `path`, below a dataset or model root of the executor, by `url`, of a host that its
    operator allows, or by `upload`, the name under which `gpusteward dataset add` keeps it. With
    `sha256` it is refused if it has another; of an upload the platform fills it in when the task is
    submitted, so that what the name means later changes nothing.
    """

    path: Place | None = None
    url: Place | None = None
    upload: Name | None = None
    sha256: Sha256 | None = None

    def __post_init__(self) -> None:
        if [self.path, self.url, self.upload].count(None) != 2:
            raise ValueError("expected one of `path`, `url` and `upload` of a file")
