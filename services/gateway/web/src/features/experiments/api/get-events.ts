import { queryOptions } from "@tanstack/react-query";
import { allEvents } from "@/lib/all-events";

/** All of one experiment, oldest first. */
export const eventsOptions = (experimentId: string) =>
  queryOptions({
    queryKey: ["experiments", "events of one", experimentId],
    queryFn: ({ signal }) => allEvents({ experiment_id: experimentId }, signal),
  });
