import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import * as endpoints from "@schemas/endpoints";
import type { AttemptLogged, LogChunk } from "@schemas/messages";
import { Loaded } from "@/components/page";
import { openLiveSocket } from "@/lib/live/socket";
import { logOptions } from "../api/get-log";
import classes from "./logs.module.css";

const MOST_LINES = 2000;

interface LogsProps {
  experimentId: string;
  attemptId: string | undefined;
  isRunning: boolean;
}

/** The end of what its engine wrote, and what it goes on to write. */
export function Logs({ experimentId, attemptId, isRunning }: LogsProps) {
  const stored = useQuery(logOptions(experimentId, attemptId, isRunning));
  const [written, setWritten] = useState<AttemptLogged[]>([]);
  const end = useRef<HTMLDivElement>(null);

  useEffect(() => {
    if (!isRunning) return;
    const socket = openLiveSocket<AttemptLogged>({
      path: endpoints.watchLogs.path,
      query: () => ({ experiment_id: experimentId }),
      onMessage: (chunk) => setWritten((before) => [...before.slice(-MOST_LINES), chunk]),
      onConnection: (connection) => {
        if (connection === "open") void stored.refetch();
      },
    });
    return () => socket.close();
    // The query's own identity changes with each answer.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [experimentId, isRunning]);

  const lines = joinLines(stored.data, written, attemptId);
  useEffect(() => {
    end.current?.scrollTo({ top: end.current.scrollHeight });
  }, [lines.length]);

  return (
    <section>
      <h2>Engine log{isRunning && <span className="dim"> · live</span>}</h2>
      <Loaded query={stored}>
        {() =>
          lines.length === 0 ? (
            <p className="dim">The log is empty.</p>
          ) : (
            // Keyboards scroll it too.
            <div ref={end} className={classes.log} tabIndex={0} role="log" aria-label="engine log">
              {lines.map((line, index) => (
                <div key={index}>{line || " "}</div>
              ))}
            </div>
          )
        }
      </Loaded>
    </section>
  );
}

/** What was stored first, then what came and was not in it. */
export function joinLines(
  stored: LogChunk | undefined,
  written: AttemptLogged[],
  attemptId: string | undefined,
): string[] {
  const from = stored?.attempt_id === attemptId ? (stored?.next_offset ?? 0) : 0;
  const newer = written.filter((chunk) => chunk.attempt_id === attemptId && chunk.offset >= from);
  return [
    ...(from > 0 ? (stored?.lines ?? []) : []),
    ...newer.flatMap((chunk) => chunk.lines),
  ].slice(-MOST_LINES);
}
