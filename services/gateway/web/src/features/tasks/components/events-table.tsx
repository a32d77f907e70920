import { useQuery } from "@tanstack/react-query";
import type { StoredEvent } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { Loaded } from "@/components/page";
import { fullMoment, moment } from "@/lib/time";
import { eventsOptions } from "../api/get-tasks";

const SHOWN_FIELDS = ["ordinal", "phase", "outcome", "reason", "state", "objective_score"];

const COLUMNS: Column<StoredEvent>[] = [
  { name: "Cursor", isNumber: true, sortBy: (each) => each.cursor, cell: (each) => each.cursor },
  {
    name: "Time",
    sortBy: (each) => each.occurred_at,
    cell: (each) => <span title={fullMoment(each.occurred_at)}>{moment(each.occurred_at)}</span>,
  },
  { name: "Event", sortBy: (each) => each.type, cell: (each) => each.type.replaceAll("_", " ") },
  {
    name: "What it says",
    cell: ({ event }) =>
      SHOWN_FIELDS.flatMap((name) => {
        const value = event[name];
        return typeof value === "string" || typeof value === "number" ? `${name.replaceAll("_", " ")} ${value}` : [];
      }).join(", "),
  },
  {
    name: "Experiment",
    cell: ({ event }) => (
      <span className="mono">{typeof event.experiment_id === "string" ? event.experiment_id.slice(-12) : ""}</span>
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
          columns={COLUMNS}
          rows={all.toReversed()}
          rowKey={(each) => String(each.cursor)}
        />
      )}
    </Loaded>
  );
}
