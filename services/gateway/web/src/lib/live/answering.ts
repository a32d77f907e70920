import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { healthOptions } from "../api/get-health";
import { reopenSockets } from "./socket";

const QUIET_SECONDS = 5;

/**
 * Whether the gateway answers, asked while nothing comes: a connection that stays open says nothing
 * of a process that hangs, or of a network that swallows what is sent.
 */
export function useIsAnswering(quietSeconds: number | null): boolean {
  const isQuiet = quietSeconds !== null && quietSeconds >= QUIET_SECONDS;
  const { isError } = useQuery({ ...healthOptions, enabled: isQuiet });
  const isSilent = isQuiet && isError;
  const wasSilent = useRef(false);
  useEffect(() => {
    if (wasSilent.current && isQuiet && !isError) reopenSockets();
    wasSilent.current = isSilent;
  }, [isError, isQuiet, isSilent]);
  return !isSilent;
}
