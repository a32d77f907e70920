import { queryOptions } from "@tanstack/react-query";
import type { ClusterDevice, GpuView, NodeView } from "@schemas/messages";
import { allOf } from "@/lib/api-client";

const REFRESH_MS = 5_000;
const DEFINED_REFRESH_MS = 60_000;

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

/** Of Kubernetes clusters; people define them, seldom. */
export const devicesOptions = queryOptions({
  queryKey: ["cluster-devices"],
  queryFn: ({ signal }) => allOf<"devices", ClusterDevice>("/cluster/devices", "devices", { signal }),
  refetchInterval: DEFINED_REFRESH_MS,
});
