import { useQuery } from "@tanstack/react-query";
import { gpusOptions } from "@/lib/api/get-gpus";
import { nodesOptions } from "@/lib/api/get-nodes";

const REFRESH_MS = 5_000;

/** Fetched again by the clock too: that a lease was renewed no event tells. */
export const useGpus = () => useQuery({ ...gpusOptions, refetchInterval: REFRESH_MS });

export const useNodes = () => useQuery({ ...nodesOptions, refetchInterval: REFRESH_MS });
