import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { allOf } from "@/lib/api-client";

/** A namespace's own, after them those of the release. */
export const presetsOptions = (namespace: string) =>
  queryOptions({
    queryKey: ["presets", namespace],
    queryFn: ({ signal }) =>
      allOf(endpoints.listPresets, (page) => page.presets, {
        query: { namespace: namespace || null },
        signal,
      }),
  });
