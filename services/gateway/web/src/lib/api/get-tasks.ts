import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api, type Query } from "@/lib/api-client";

/** The newest first; those that events concern are fetched again at once. */
export const tasksOptions = (query: Query) =>
  queryOptions({
    queryKey: ["tasks", "list", query],
    queryFn: ({ signal }) => api(endpoints.listTasks, { query, signal }),
  });
