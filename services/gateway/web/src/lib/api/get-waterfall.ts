import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";

/** Where the GPU-seconds of a task or an experiment went; while it runs, a new `revision` for each change. */
export const waterfallOptions = (subjectId: string, revision: number) =>
  queryOptions({
    queryKey: ["reports", "waterfall", subjectId, revision],
    queryFn: ({ signal }) =>
      api(endpoints.getWaterfall, { place: { subject_id: subjectId }, signal }),
    placeholderData: (before) => before,
  });
