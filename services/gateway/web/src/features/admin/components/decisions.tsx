import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button, Checkbox, Select, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import type { DecisionRecord, Replay } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { Empty, Failure, Loaded } from "@/components/page";
import { StateMark } from "@/components/state-mark";
import { When } from "@/components/when";
import { holderOf } from "@/domain/holder";
import { whole } from "@/lib/units";
import { useUrlState } from "@/lib/url-state";
import { decisionsOptions } from "../api/get-decisions";
import { holderNamesOptions } from "../api/get-holder-names";
import { useReplay } from "../api/replay-decisions";
import { inputSentences, outcomeSentences } from "../decision-words";
import { recordWords } from "../record-words";
import classes from "./admin.module.css";

const SETTLE_MS = 400;
const REPLAYED = 100;
const NO_NAMES: ReadonlyMap<string, string> = new Map();

/** What the scheduler decided and why, newest first, and whether the same rules decide so again. */
export function Decisions() {
  const [reservation, setReservation] = useUrlState("reservation", "");
  const [isDetailed, setDetailed] = useUrlState("details", "");
  const [reservationId] = useDebouncedValue(reservation, SETTLE_MS);
  const decisions = useInfiniteQuery(decisionsOptions(reservationId));
  const names = useQuery(holderNamesOptions).data ?? NO_NAMES;
  const replay = useReplay();
  const again = (from_id: number | null, limit: number) =>
    replay.mutate({ from_id, reservation_id: reservationId || null, limit });
  const columns: Column<DecisionRecord>[] = [
    { name: t`When`, cell: (decision) => <When at={decision.decided_at} /> },
    {
      name: t`Decision`,
      isLong: true,
      cell: (decision) => (
        <Sentences
          sentences={outcomeSentences(decision.outcomes, names)}
          otherwise={recordWords(decision.outcomes) || t`nothing can be granted now`}
        />
      ),
    },
    {
      name: t`Because`,
      isLong: true,
      cell: (decision) => (
        <Sentences
          sentences={inputSentences(decision.inputs, names)}
          otherwise={t`readings of the fleet changed`}
        />
      ),
    },
    ...(isDetailed ? detailColumns : []),
    {
      name: t`Check`,
      cell: (decision) => (
        <Button
          size="compact-xs"
          variant="default"
          aria-label={t`Replay decision ${decision.decision_id}`}
          onClick={() => again(decision.decision_id, 1)}
        >
          <Trans>Replay</Trans>
        </Button>
      ),
    },
  ];
  const shown = decisions.data?.pages.flatMap((page) => page.decisions) ?? [];
  const choices = [...names]
    .map(([value, holder]) => ({
      value,
      label: `${holderOf(holder).name || "unnamed"} (…${value.slice(-8)})`,
    }))
    .slice(0, REPLAYED);
  return (
    <>
      <div className="filters">
        <Select
          size="xs"
          w={240}
          label={t`Holder`}
          placeholder={t`All holders`}
          searchable
          clearable
          data={choices}
          value={names.has(reservation) ? reservation : null}
          onChange={(value) => setReservation(value ?? "")}
        />
        <Checkbox
          size="xs"
          label={t`Show numbers and ids`}
          checked={isDetailed === "yes"}
          onChange={(event) => setDetailed(event.currentTarget.checked ? "yes" : "")}
          mb={6}
        />
        {isDetailed && (
          <TextInput
            size="xs"
            w={290}
            label={t`Reservation ID`}
            value={reservation}
            onChange={(event) => setReservation(event.currentTarget.value.trim())}
          />
        )}
        <Button
          size="xs"
          variant="default"
          loading={replay.isPending}
          disabled={shown.length === 0}
          onClick={() => again(shown.at(-1)?.decision_id ?? null, shown.length)}
        >
          <Trans>Replay these</Trans>
        </Button>
      </div>
      {replay.error && <Failure error={replay.error} />}
      {replay.data && <ReplayResult replay={replay.data} />}
      <Loaded query={decisions}>
        {({ pages }) => {
          const records = pages.flatMap((page) => page.decisions);
          return records.length === 0 ? (
            <Empty title={t`No decisions recorded`}>
              <Trans>A decision is recorded whenever a request is granted or refused.</Trans>
            </Empty>
          ) : (
            <DataTable
              label={t`Decisions`}
              columns={columns}
              rows={records}
              rowKey={(decision) => String(decision.decision_id)}
            />
          );
        }}
      </Loaded>
      {decisions.hasNextPage && (
        <Button
          size="xs"
          variant="default"
          mt="sm"
          loading={decisions.isFetchingNextPage}
          onClick={() => void decisions.fetchNextPage()}
        >
          <Trans>Load older decisions</Trans>
        </Button>
      )}
    </>
  );
}

/** On request: what replays and logs name a decision by. */
const detailColumns: Column<DecisionRecord>[] = [
  { name: t`Number`, isNumber: true, cell: (decision) => whole(decision.decision_id) },
  {
    name: t`Term`,
    title: t`term of the leader that made the decision`,
    isNumber: true,
    cell: (decision) => whole(decision.term),
  },
  {
    name: t`Inputs`,
    cell: (decision) =>
      `${decision.keyframe ? t`full state: ` : ""}${recordWords(decision.inputs)}`,
  },
];

const SHOWN = 4;

function Sentences({ sentences, otherwise }: { sentences: string[]; otherwise: string }) {
  if (sentences.length === 0) return <span className="dim">{otherwise}</span>;
  const more = sentences.length - SHOWN;
  return (
    <>
      {sentences.slice(0, SHOWN).map((sentence) => (
        <div key={sentence}>{sentence}</div>
      ))}
      {more > 0 && (
        <div className="dim">
          <Trans>and {more} more</Trans>
        </div>
      )}
    </>
  );
}

function ReplayResult({ replay }: { replay: Replay }) {
  const different = replay.decisions.filter((decision) => !decision.same);
  const outcome = t`${whole(replay.checked)} replayed from decision ${whole(replay.keyframe_id)}, ${whole(replay.different)} with a different outcome`;
  return (
    <div role="status" className={classes.told}>
      <StateMark kind={replay.different === 0 ? "ok" : "bad"} word={outcome} />
      {different.map((decision) => (
        <details key={decision.decision_id}>
          <summary>
            <Trans>Decision {decision.decision_id}</Trans>
          </summary>
          <div className={classes.sides}>
            <pre>{JSON.stringify(decision.recorded, null, 2)}</pre>
            <pre>{JSON.stringify(decision.replayed, null, 2)}</pre>
          </div>
        </details>
      ))}
    </div>
  );
}
