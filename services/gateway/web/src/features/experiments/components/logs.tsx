import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import type { AttemptLogged, LogChunk } from "@schemas/messages";
import { Loaded } from "@/components/page";
import { api } from "@/lib/api-client";
import { openLiveSocket } from "@/lib/live-socket";
import classes from "./logs.module.css";

const MOST_LINES = 2000;

interface LogsProps {
  experimentId: string;
  attemptId: string | undefined;
  isRunning: boolean;
}

/** The end of what its engine wrote, and what it goes on to write. */
export function Logs({ experimentId, attemptId, isRunning }: LogsProps) {
  const stored = useQuery({
    queryKey: ["logs", experimentId, attemptId, isRunning],
    queryFn: ({ signal }) =>
      api<LogChunk>(`/experiments/${experimentId}/logs`, { query: { lines: 500 }, signal }),
  });
  const [written, setWritten] = useState<AttemptLogged[]>([]);
  const end = useRef<HTMLDivElement>(null);

  useEffect(() => {
    if (!isRunning) return;
    const socket = openLiveSocket<AttemptLogged>({
      path: "/ws/logs",
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

  const lines = joined(stored.data, written, attemptId);
  useEffect(() => {
    end.current?.scrollTo({ top: end.current.scrollHeight });
  }, [lines.length]);

  return (
    <section>
      <h2>Log of the engine{isRunning && <span className="dim"> · live</span>}</h2>
      <Loaded query={stored}>
        {() =>
          lines.length === 0 ? (
            <p className="dim">The engine has written nothing.</p>
          ) : (
            // Keyboards scroll it too.
            // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
            <div ref={end} className={classes.log} tabIndex={0} role="log" aria-label="log of the engine">
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
export function joined(
  stored: LogChunk | undefined,
  written: AttemptLogged[],
  attemptId: string | undefined,
): string[] {
  const from = stored?.attempt_id === attemptId ? (stored?.next_offset ?? 0) : 0;
  const newer = written.filter((chunk) => chunk.attempt_id === attemptId && chunk.offset >= from);
  return [...(from > 0 ? (stored?.lines ?? []) : []), ...newer.flatMap((chunk) => chunk.lines)].slice(-MOST_LINES);
}
