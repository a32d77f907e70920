"""Which tasks use the files that people uploaded, inside a caller's transaction."""

from typing import Final

from schemas.orchestrator.uploads import MAX_NAMED_TASKS, UploadUse
from shared.postgres.database import Connection

SELECT_USES: Final = """
SELECT source ->> 'upload' AS upload, source ->> 'sha256' AS sha256,
       (array_agg(task_name ORDER BY created_at))[:$2] AS tasks
FROM task CROSS JOIN LATERAL (VALUES (record #> '{file,benchmark,dataset}'),
                                     (record #> '{file,benchmark,trace}')) AS sources (source)
WHERE namespace = $1 AND state NOT IN ('completed', 'failed', 'cancelled')
  AND source ->> 'upload' IS NOT NULL
GROUP BY 1, 2
"""


async def list_uses(connection: Connection, namespace: str) -> tuple[UploadUse, ...]:
    """Return what unfinished tasks of a namespace use."""
    rows = await connection.fetch(SELECT_USES, namespace, MAX_NAMED_TASKS)
    return tuple(
        UploadUse(upload=row["upload"], sha256=row["sha256"], tasks=tuple(row["tasks"]))
        for row in rows
    )
