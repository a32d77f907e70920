import { Button, NumberInput, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useInfiniteQuery } from "@tanstack/react-query";
import type { DecisionRecord, Replay } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { Empty, Failure, Loaded } from "@/components/page";
import { StateMark } from "@/components/state-mark";
import { fullMoment, moment, useNow } from "@/lib/time";
import { whole } from "@/lib/units";
import { useUrlState } from "@/lib/url-state";
import { decisionsOptions } from "../api/get-decisions";
import { useReplay } from "../api/replay-decisions";
import { recordWords } from "../record-words";
import classes from "./admin.module.css";

const SETTLE_MS = 400;

/** What the scheduler decided, on what, and whether the same rules decide so again. */
export function Decisions() {
  const [reservation, setReservation] = useUrlState("reservation", "");
  const [after, setAfter] = useUrlState("after", "0");
  const [[reservationId, afterId]] = useDebouncedValue(
    [reservation, Number(after) || 0] as const,
    SETTLE_MS,
  );
  const decisions = useInfiniteQuery(decisionsOptions(reservationId, afterId));
  const replay = useReplay();
  const now = useNow();
  const again = (from_id: number | null, limit: number) =>
    replay.mutate({ from_id, reservation_id: reservationId || null, limit });
  const columns: Column<DecisionRecord>[] = [
    { name: "Number", isNumber: true, cell: (decision) => whole(decision.decision_id) },
    {
      name: "When",
      cell: (decision) => (
        <time dateTime={decision.decided_at} title={fullMoment(decision.decided_at)}>
          {moment(decision.decided_at, now)}
        </time>
      ),
    },
    {
      name: "Term",
      title: "term of the leader that made the decision",
      isNumber: true,
      cell: (decision) => whole(decision.term),
    },
    {
      name: "Inputs",
      cell: (decision) =>
        `${decision.keyframe ? "full state: " : ""}${recordWords(decision.inputs)}`,
    },
    { name: "Outcome", cell: (decision) => recordWords(decision.outcomes) || "no grant" },
    {
      name: "",
      cell: (decision) => (
        <Button
          size="compact-xs"
          variant="default"
          aria-label={`Replay decision ${decision.decision_id}`}
          onClick={() => again(decision.decision_id, 1)}
        >
          Replay
        </Button>
      ),
    },
  ];
  return (
    <>
      <div className={classes.filters}>
        <TextInput
          size="xs"
          label="Reservation ID"
          value={reservation}
          onChange={(event) => setReservation(event.currentTarget.value.trim())}
        />
        <NumberInput
          size="xs"
          label="After number"
          min={0}
          allowDecimal={false}
          value={Number(after) || 0}
          onChange={(value) => setAfter(String(value || 0))}
        />
        <Button
          size="xs"
          variant="default"
          loading={replay.isPending}
          onClick={() => again(afterId + 1, 100)}
        >
          Replay this range
        </Button>
      </div>
      {replay.error && <Failure error={replay.error} />}
      {replay.data && <ReplayResult replay={replay.data} />}
      <Loaded query={decisions}>
        {({ pages }) => {
          const records = pages.flatMap((page) => page.decisions);
          return records.length === 0 ? (
            <Empty title="No decisions recorded">
              A decision is recorded whenever a request is granted or refused.
            </Empty>
          ) : (
            <DataTable
              label="Decisions"
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
          Load later decisions
        </Button>
      )}
    </>
  );
}

function ReplayResult({ replay }: { replay: Replay }) {
  const different = replay.decisions.filter((decision) => !decision.same);
  const outcome = `${whole(replay.checked)} replayed from decision ${whole(replay.keyframe_id)}, ${whole(replay.different)} with a different outcome`;
  return (
    <div role="status" className={classes.told}>
      <StateMark kind={replay.different === 0 ? "ok" : "bad"} word={outcome} />
      {different.map((decision) => (
        <details key={decision.decision_id}>
          <summary>Decision {decision.decision_id}</summary>
          <div className={classes.sides}>
            <pre>{JSON.stringify(decision.recorded, null, 2)}</pre>
            <pre>{JSON.stringify(decision.replayed, null, 2)}</pre>
          </div>
        </details>
      ))}
    </div>
  );
}
