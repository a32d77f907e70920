import { t } from "@lingui/core/macro";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import type { StoredEvent } from "@schemas/messages";
import { EventList } from "@/components/event-list";
import { FilterSelect } from "@/components/filter-select";
import { Loaded } from "@/components/page";
import { useUrlState } from "@/lib/url-state";
import { eventsOptions } from "../api/get-events";

const SHOWN = 500;

/** What happened to a task and its experiments, newest first. */
export function EventsTable({ taskId }: { taskId: string }) {
  const events = useQuery(eventsOptions(taskId));
  return <Loaded query={events}>{(all) => <Events all={all} />}</Loaded>;
}

function Events({ all }: { all: StoredEvent[] }) {
  const [experiment, setExperiment] = useUrlState("experiment", "");
  const ordinals = useMemo(() => ordinalsIn(all), [all]);
  const shown = all.filter(({ event }) => !experiment || idOf(event) === experiment);
  return (
    <EventList
      events={shown.toReversed().slice(0, SHOWN)}
      names={{
        gpu: (node) => node,
        experiment: (id) => ordinals.get(id) ?? `…${id.slice(-8)}`,
      }}
      empty={t`No events yet.`}
      filters={
        <FilterSelect
          w={170}
          aria-label={t`Experiment`}
          all={t`All experiments`}
          searchable
          data={[...ordinals].map(([value, label]) => ({ value, label }))}
          value={experiment}
          onChange={setExperiment}
        />
      }
    />
  );
}

type Body = StoredEvent["event"];

/** Of an experiment, whether it is told as such or as the holder of a reservation. */
function idOf(event: Body): string | null {
  if (typeof event.experiment_id === "string") return event.experiment_id;
  const holder = typeof event.holder === "string" ? event.holder : "";
  return /^experiment\/([^/]+)\//.exec(holder)?.[1] ?? null;
}

/** "#3" by the id of an experiment, in their order. */
function ordinalsIn(all: StoredEvent[]): Map<string, string> {
  const pairs = all.flatMap(({ event }): [string, number][] => {
    const id = idOf(event);
    return id !== null && typeof event.ordinal === "number" ? [[id, event.ordinal]] : [];
  });
  return new Map(
    [...new Map(pairs)]
      .toSorted(([, a], [, b]) => a - b)
      .map(([id, ordinal]): [string, string] => [id, `#${ordinal}`]),
  );
}
