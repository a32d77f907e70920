import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";

/** How to start one experiment's engine elsewhere, and to send it the same loads. */
export const commandsOptions = (experimentId: string) =>
  queryOptions({
    queryKey: ["experiments", "commands of one", experimentId],
    queryFn: ({ signal }) =>
      api(endpoints.getCommands, { place: { experiment_id: experimentId }, signal }),
  });
