import { Button, Select, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useInfiniteQuery } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import type { AuditEntry, AuditKind } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { Empty, Loaded } from "@/components/page";
import { StateMark } from "@/components/state-mark";
import { fullMoment, moment, useNow } from "@/lib/time";
import { UNKNOWN } from "@/lib/units";
import { useUrlState } from "@/lib/url-state";
import { auditLogOptions } from "../api/get-audit-log";
import { changesOf } from "../changes";
import classes from "./admin.module.css";

const SETTLE_MS = 400;
const FIRST_ERROR = 400;
const KINDS: { value: AuditKind; label: string }[] = [
  { value: "change", label: "changes" },
  { value: "sign_in", label: "sign-ins" },
  { value: "refused", label: "refused sign-ins" },
];

/** Every request that was to change something, sign-ins and refused ones, newest first. */
export function AuditLog() {
  const [caller, setCaller] = useUrlState("caller", "");
  const [path, setPath] = useUrlState("path", "");
  const [kind, setKind] = useUrlState("kind", "");
  const [filter] = useDebouncedValue({ caller, path, kind }, SETTLE_MS);
  const log = useInfiniteQuery(auditLogOptions(filter));
  const now = useNow();
  const columns: Column<AuditEntry>[] = [
    {
      name: "When",
      cell: (entry) => (
        <time dateTime={entry.at} title={fullMoment(entry.at)}>
          {moment(entry.at, now)}
        </time>
      ),
    },
    {
      name: "Who",
      cell: (entry) => entry.caller || (entry.kind === "refused" ? UNKNOWN : "everybody"),
    },
    { name: "By", title: "What the caller was known by", cell: (entry) => entry.login || UNKNOWN },
    { name: "From", cell: (entry) => entry.address || UNKNOWN },
    { name: "Request", cell: (entry) => <Request entry={entry} /> },
    { name: "Status", cell: (entry) => <Answer status={entry.status} /> },
    {
      name: "Changes",
      cell: (entry) => <Changes lines={changesOf(entry.before, entry.after)} />,
    },
  ];
  return (
    <>
      <div className={classes.filters}>
        <Select
          size="xs"
          label="Kind"
          placeholder="all"
          clearable
          data={KINDS}
          value={kind || null}
          onChange={(value) => setKind(value ?? "")}
        />
        <TextInput
          size="xs"
          label="Token name"
          value={caller}
          onChange={(event) => setCaller(event.currentTarget.value)}
        />
        <TextInput
          size="xs"
          label="Path prefix"
          placeholder={endpoints.listNodes.path}
          value={path}
          onChange={(event) => setPath(event.currentTarget.value)}
        />
      </div>
      <Loaded query={log}>
        {({ pages }) => {
          const entries = pages.flatMap((page) => page.entries);
          return entries.length === 0 ? (
            <Empty title="No entries">Remove a filter, or wait for the first change.</Empty>
          ) : (
            <DataTable
              label="Audit log"
              columns={columns}
              rows={entries}
              rowKey={(entry) => String(entry.audit_id)}
            />
          );
        }}
      </Loaded>
      {log.hasNextPage && (
        <Button
          size="xs"
          variant="default"
          mt="sm"
          loading={log.isFetchingNextPage}
          onClick={() => void log.fetchNextPage()}
        >
          Load older entries
        </Button>
      )}
    </>
  );
}

function Request({ entry }: { entry: AuditEntry }) {
  return (
    <>
      {entry.kind === "sign_in" && "signed in: "}
      {entry.kind === "refused" && `refused ${String(entry.count)} times, ${entry.reason}: `}
      <span className="mono">
        {entry.method} {entry.path.replace(endpoints.API, "")}
      </span>
    </>
  );
}

function Answer({ status }: { status: number | null }) {
  if (status === null)
    return <StateMark kind="unknown" word="pending" title="no response recorded" />;
  return <StateMark kind={status < FIRST_ERROR ? "ok" : "bad"} word={String(status)} />;
}

const SHORT_LINES = 4;

function Changes({ lines }: { lines: string[] }) {
  const list = (some: string[]) => (
    <ul className={classes.changes}>
      {some.map((line) => (
        <li key={line} title={line}>
          {line}
        </li>
      ))}
    </ul>
  );
  return (
    <>
      {list(lines.slice(0, SHORT_LINES))}
      {lines.length > SHORT_LINES && (
        <details>
          <summary>{lines.length - SHORT_LINES} more</summary>
          {list(lines.slice(SHORT_LINES))}
        </details>
      )}
    </>
  );
}
