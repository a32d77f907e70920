import { queryOptions } from "@tanstack/react-query";
import type { Endpoint } from "@schemas/endpoints";
import { api, type Query } from "@/lib/api-client";

/** A report since a moment, as one of the questions beside this file asks for it. */
export const reportOptions = <Names extends string, Answer>(
  name: string,
  report: Endpoint<never, Names, undefined, Answer>,
  query: Query<Names> & { start_at: string },
) =>
  queryOptions({
    queryKey: ["reports", name, query],
    queryFn: ({ signal }) => api(report, { query, signal }),
    placeholderData: (before) => before,
  });

/** What all reports of the page are about; without a namespace all that the viewer may see. */
export interface ReportScope {
  startAt: string;
  namespace: string;
}
