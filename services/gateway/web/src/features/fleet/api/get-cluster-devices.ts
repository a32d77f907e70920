import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { allOf } from "@/lib/api-client";

const REFRESH_MS = 60_000;

/** Devices that people define in Kubernetes clusters, seldom. */
export const clusterDevicesOptions = queryOptions({
  queryKey: ["cluster-devices"],
  queryFn: ({ signal }) => allOf(endpoints.listClusterDevices, (page) => page.devices, { signal }),
  refetchInterval: REFRESH_MS,
});
