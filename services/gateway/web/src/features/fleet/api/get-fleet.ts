import { queryOptions } from "@tanstack/react-query";
import type { GpuView, NodeView } from "@schemas/messages";
import { allOf } from "@/lib/api-client";

const REFRESH_MS = 5_000;

/** Ledger and newest reading; between two answers `/ws/metrics` has newer readings. */
export const gpusOptions = queryOptions({
  queryKey: ["gpus"],
  queryFn: ({ signal }) => allOf<"gpus", GpuView>("/gpus", "gpus", { signal }),
  refetchInterval: REFRESH_MS,
});

export const nodesOptions = queryOptions({
  queryKey: ["nodes"],
  queryFn: ({ signal }) => allOf<"nodes", NodeView>("/nodes", "nodes", { signal }),
  refetchInterval: REFRESH_MS,
});
