import { queryOptions, skipToken } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";
import type { Draft } from "../draft";

const KEPT_MS = 10_000;

/** What the draft would become here; ApiError says which field is wrong. */
export const planOptions = (draft: Draft | null, namespace = "") =>
  queryOptions({
    queryKey: ["plan", draft, namespace],
    queryFn:
      draft === null
        ? skipToken
        : ({ signal }) =>
            api(endpoints.validateTask, {
              query: { namespace: namespace || null },
              body: JSON.stringify(draft),
              signal,
            }),
    retry: false,
    gcTime: KEPT_MS,
  });
