import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Autocomplete, Button, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import * as endpoints from "@schemas/endpoints";
import type { AuditEntry, AuditKind } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { FilterSelect } from "@/components/filter-select";
import { Empty, Loaded } from "@/components/page";
import { StateMark } from "@/components/state-mark";
import { When } from "@/components/when";
import { paths } from "@/lib/paths";
import { UNKNOWN } from "@/lib/units";
import { useUrlState } from "@/lib/url-state";
import { auditLogOptions } from "../api/get-audit-log";
import { ACTIONS, auditChanges, auditWords, type AuditWords } from "../audit-words";
import classes from "./admin.module.css";

const SETTLE_MS = 400;
const FIRST_ERROR = 400;
const KINDS: { value: AuditKind; label: string }[] = [
  { value: "change", label: t`changes` },
  { value: "sign_in", label: "sign-ins" },
  { value: "refused", label: t`refused sign-ins` },
];
/** As the schemas have `AuditResult`, which no answer names. */
const RESULTS = [
  { value: "done", label: t`done` },
  { value: "refused", label: t`refused` },
  { value: "unanswered", label: t`unanswered` },
];

/** Every request that was to change something, sign-ins and refused ones, newest first. */
export function AuditLog() {
  const [caller, setCaller] = useUrlState("caller", "");
  const [about, setAbout] = useUrlState("about", "");
  const [kind, setKind] = useUrlState("kind", "");
  const [action, setAction] = useUrlState("action", "");
  const [result, setResult] = useUrlState("result", "");
  const [filter] = useDebouncedValue({ caller, about, kind, action, result }, SETTLE_MS);
  const log = useInfiniteQuery(auditLogOptions(filter));
  const people = new Set(
    log.data?.pages.flatMap(({ entries }) => entries.flatMap(({ caller: name }) => name || [])),
  );
  const columns: Column<AuditEntry>[] = [
    { name: t`When`, cell: (entry) => <When at={entry.at} /> },
    {
      name: t`Who`,
      cell: (entry) => entry.caller || (entry.kind === "refused" ? UNKNOWN : "everybody"),
    },
    { name: t`What`, isLong: true, cell: (entry) => <What entry={entry} /> },
    { name: t`Result`, cell: (entry) => <Answer status={entry.status} /> },
    {
      name: t`Changes`,
      cell: (entry) => <Changes lines={auditChanges(entry)} isMade={entry.before === null} />,
    },
  ];
  return (
    <>
      <div className="filters">
        <Autocomplete
          size="xs"
          w={150}
          label={t`Person or token`}
          data={[...people].sort()}
          value={caller}
          onChange={setCaller}
        />
        <FilterSelect
          w={190}
          label={t`Action`}
          all={t`All actions`}
          searchable
          data={ACTIONS}
          value={action}
          onChange={setAction}
        />
        <FilterSelect
          w={120}
          label={t`Result`}
          all={t`All results`}
          data={RESULTS}
          value={result}
          onChange={setResult}
        />
        <FilterSelect
          w={140}
          label={t`Kind`}
          all={t`All kinds`}
          data={KINDS}
          value={kind}
          onChange={setKind}
        />
        <TextInput
          size="xs"
          w={170}
          label={t`About`}
          placeholder={t`node, holder, task`}
          value={about}
          onChange={(event) => setAbout(event.currentTarget.value)}
        />
      </div>
      <Loaded query={log}>
        {({ pages }) => {
          const entries = pages.flatMap((page) => page.entries);
          return entries.length === 0 ? (
            <Empty title={t`No entries`}>
              <Trans>Remove a filter, or wait for the first change.</Trans>
            </Empty>
          ) : (
            <DataTable
              label={t`Audit log`}
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
          <Trans>Load older entries</Trans>
        </Button>
      )}
    </>
  );
}

const PLACES: Record<NonNullable<AuditWords["place"]>["kind"], (id: string) => string> = {
  node: paths.node,
  task: paths.task,
  experiment: paths.experiment,
  reservation: (id) => `${paths.reservations()}?open=${id}`,
};

/** A sentence; how the request came, from where and with which id on demand. */
function What({ entry }: { entry: AuditEntry }) {
  const { sentence, place } = auditWords(entry);
  const more = [
    `${entry.method} ${entry.path.replace(endpoints.API, "")}`,
    entry.login && t`by ${entry.login}`,
    entry.address && t`from ${entry.address}`,
    !entry.proved && t`who sent it is not proved`,
  ].filter(Boolean);
  return (
    <details className={classes.what}>
      <summary>{sentence}</summary>
      <span className="mono">{more.join(", ")}</span>{" "}
      {place && (
        <Link to={PLACES[place.kind](place.id)}>
          <Trans>Open the {place.kind}</Trans>
        </Link>
      )}
    </details>
  );
}

function Answer({ status }: { status: number | null }) {
  if (status === null)
    return <StateMark kind="unknown" word={t`unanswered`} title={t`no response recorded`} />;
  return (
    <StateMark
      kind={status < FIRST_ERROR ? "ok" : "bad"}
      word={status < FIRST_ERROR ? t`done` : t`refused`}
      title={String(status)}
    />
  );
}

const SHORT_LINES = 4;

/** Of what was made there is nothing to compare with: its state is folded. */
function Changes({ lines, isMade }: { lines: string[]; isMade: boolean }) {
  const shown = isMade ? 0 : SHORT_LINES;
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
      {list(lines.slice(0, shown))}
      {lines.length > shown && (
        <details>
          <summary>{isMade ? t`as it was made` : t`${lines.length - shown} more`}</summary>
          {list(lines.slice(shown))}
        </details>
      )}
    </>
  );
}
