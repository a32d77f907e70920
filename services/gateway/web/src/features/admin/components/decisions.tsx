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
import { decisionsOptions, useReplay } from "../api/get-admin";
import { recordWords } from "../record-words";
import classes from "./admin.module.css";

const SETTLE_MS = 400;

/** What the scheduler decided, on what, and whether the same rules decide so again. */
export function Decisions() {
  const [reservation, setReservation] = useUrlState("reservation", "");
  const [after, setAfter] = useUrlState("after", "0");
  const [[reservationId, afterId]] = useDebouncedValue([reservation, Number(after) || 0] as const, SETTLE_MS);
  const decisions = useInfiniteQuery(decisionsOptions(reservationId, afterId));
  const replay = useReplay();
  const now = useNow();
  const again = (from_id: number | null, limit: number) =>
    replay.mutate({ from_id, reservation_id: reservationId || null, limit });
  const columns: Column<DecisionRecord>[] = [
    { name: "Number", isNumber: true, cell: (each) => whole(each.decision_id) },
    {
      name: "When",
      cell: (each) => (
        <time dateTime={each.decided_at} title={fullMoment(each.decided_at)}>
          {moment(each.decided_at, now)}
        </time>
      ),
    },
    { name: "Term", title: "of the leader that decided", isNumber: true, cell: (each) => whole(each.term) },
    {
      name: "Decided on",
      cell: (each) => `${each.keyframe ? "the whole state: " : ""}${recordWords(each.inputs)}`,
    },
    { name: "Decided", cell: (each) => recordWords(each.outcomes) || "nothing to grant" },
    {
      name: "",
      cell: (each) => (
        <Button
          size="compact-xs"
          variant="default"
          aria-label={`Replay decision ${each.decision_id}`}
          onClick={() => again(each.decision_id, 1)}
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
          label="Id of a reservation"
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
        <Button size="xs" variant="default" loading={replay.isPending} onClick={() => again(afterId + 1, 100)}>
          Replay these
        </Button>
      </div>
      {replay.error && <Failure error={replay.error} />}
      {replay.data && <Replayed replay={replay.data} />}
      <Loaded query={decisions}>
        {({ pages }) => {
          const found = pages.flatMap((page) => page.decisions);
          return found.length === 0 ? (
            <Empty title="No decision is recorded">One is, each time that a request is granted or cannot be.</Empty>
          ) : (
            <DataTable label="Decisions" columns={columns} rows={found} rowKey={(each) => String(each.decision_id)} />
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
          Later ones
        </Button>
      )}
    </>
  );
}

function Replayed({ replay }: { replay: Replay }) {
  const different = replay.decisions.filter((each) => !each.same);
  const told = `${whole(replay.checked)} decided again from number ${whole(replay.keyframe_id)} on, ${whole(replay.different)} came out otherwise`;
  return (
    <div role="status" className={classes.told}>
      <StateMark kind={replay.different === 0 ? "ok" : "bad"} word={told} />
      {different.map((each) => (
        <details key={each.decision_id}>
          <summary>Number {each.decision_id}</summary>
          <div className={classes.sides}>
            <pre>{JSON.stringify(each.recorded, null, 2)}</pre>
            <pre>{JSON.stringify(each.replayed, null, 2)}</pre>
          </div>
        </details>
      ))}
    </div>
  );
}
