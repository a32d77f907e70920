"""Which unfinished tasks use the files that people uploaded."""

from msgspec import Struct

from schemas.base import Name, Namespace, Query, View
from schemas.task.source_file import Sha256

MAX_NAMED_TASKS = 20


class ListUploadUses(Query, frozen=True, kw_only=True, tag="orchestrator.list_upload_uses"):
    """Answered by `UploadUses`."""

    namespace: Namespace


class UploadUse(Struct, frozen=True, kw_only=True):
    """A file that unfinished tasks use: `tasks` has the names of the first MAX_NAMED_TASKS."""

    upload: Name
    sha256: Sha256
    tasks: tuple[str, ...]


class UploadUses(View, frozen=True, kw_only=True, tag="orchestrator.upload_uses"):
    uses: tuple[UploadUse, ...]
