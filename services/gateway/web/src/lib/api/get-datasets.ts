import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { allOf } from "@/lib/api-client";

/** Uploaded datasets and traces of a namespace, and what room it has for more; without one, of all that may be seen. */
export const datasetsOptions = (namespace: string) =>
  queryOptions({
    queryKey: ["datasets", namespace],
    queryFn: async ({ signal }) => {
      const pages = await allOf(endpoints.listDatasets, (page) => [page], {
        query: { namespace: namespace || null },
        signal,
      });
      return { datasets: pages.flatMap((page) => page.datasets), room: pages.at(-1) };
    },
  });
