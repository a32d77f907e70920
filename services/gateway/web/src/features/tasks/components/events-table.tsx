import { useQuery } from "@tanstack/react-query";
import type { StoredEvent } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { Loaded } from "@/components/page";
import { fullMoment, moment } from "@/lib/time";
import { eventsOptions } from "../api/get-events";

const SHOWN_FIELDS = ["ordinal", "phase", "outcome", "reason", "state", "objective_score"];

const COLUMNS: Column<StoredEvent>[] = [
  {
    name: "Cursor",
    isNumber: true,
    sortBy: (event) => event.cursor,
    cell: (event) => event.cursor,
  },
  {
    name: "Time",
    sortBy: (event) => event.occurred_at,
    cell: (event) => <span title={fullMoment(event.occurred_at)}>{moment(event.occurred_at)}</span>,
  },
  {
    name: "Event",
    sortBy: (event) => event.type,
    cell: (event) => event.type.replaceAll("_", " "),
  },
  {
    name: "Details",
    cell: ({ event }) =>
      SHOWN_FIELDS.flatMap((name) => {
        const value = event[name];
        return typeof value === "string" || typeof value === "number"
          ? `${name.replaceAll("_", " ")} ${value}`
          : [];
      }).join(", "),
  },
  {
    name: "Experiment",
    cell: ({ event }) => (
      <span className="mono">
        {typeof event.experiment_id === "string" ? event.experiment_id.slice(-12) : ""}
      </span>
    ),
  },
];

export function EventsTable({ taskId }: { taskId: string }) {
  const events = useQuery(eventsOptions(taskId));
  return (
    <Loaded query={events}>
      {(all) => (
        <DataTable
          label="Events"
          empty="No events yet."
          columns={COLUMNS}
          rows={all.toReversed()}
          rowKey={(event) => String(event.cursor)}
        />
      )}
    </Loaded>
  );
}
