import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button, Checkbox, NativeSelect, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState } from "react";
import * as endpoints from "@schemas/endpoints";
import type { AttemptLogged } from "@schemas/messages";
import { Failure, Loaded } from "@/components/page";
import { download } from "@/lib/csv";
import { isOneOf } from "@/lib/is-one-of";
import { openLiveSocket } from "@/lib/live/socket";
import { useUrlState } from "@/lib/url-state";
import { useWholeLog } from "../api/download-log";
import { logOptions } from "../api/get-log";
import { filtered, joinLines, levelled, LOG_LEVELS, MOST_LINES, type LogLine } from "../log-lines";
import classes from "./logs.module.css";

interface LogsProps {
  experimentId: string;
  attemptId: string | undefined;
  isRunning: boolean;
  fileName: string;
}

/** The end of what its engine wrote, and what it goes on to write. */
export function Logs({ experimentId, attemptId, isRunning, fileName }: LogsProps) {
  const stored = useQuery(logOptions(experimentId, attemptId, isRunning));
  const [written, setWritten] = useState<AttemptLogged[]>([]);

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

  const lines = useMemo(
    () => levelled(joinLines(stored.data, written, attemptId)),
    [attemptId, stored.data, written],
  );
  return (
    <section aria-label={t`Engine log`}>
      <Loaded query={stored}>
        {() =>
          lines.length === 0 ? (
            <p className="dim">
              <Trans>The log is empty.</Trans>
            </p>
          ) : (
            <LogView
              lines={lines}
              experimentId={experimentId}
              isRunning={isRunning}
              fileName={fileName}
            />
          )
        }
      </Loaded>
    </section>
  );
}

interface LogViewProps {
  lines: LogLine[];
  experimentId: string;
  isRunning: boolean;
  fileName: string;
}

function LogView({ lines, experimentId, isRunning, fileName }: LogViewProps) {
  const [words, setWords] = useUrlState("find", "");
  const [least, setLeast] = useUrlState("level", "debug");
  const [isFollowed, setFollowed] = useState(true);
  const [isWrapped, setWrapped] = useState(true);
  const box = useRef<HTMLDivElement>(null);
  const whole = useWholeLog(experimentId, (text) => download(fileName, text, "text/plain"));
  const shown = useMemo(
    () => filtered(lines, words, isOneOf(LOG_LEVELS, least) ? least : "debug"),
    [least, lines, words],
  );
  const last = shown.at(-1)?.number;
  useEffect(() => {
    if (isFollowed) box.current?.scrollTo({ top: box.current.scrollHeight });
  }, [isFollowed, last, shown.length]);
  // Whoever scrolls up reads, and is not taken away from there.
  const onScroll = () => {
    const { scrollTop = 0, scrollHeight = 0, clientHeight = 0 } = box.current ?? {};
    setFollowed(scrollHeight - scrollTop - clientHeight < 24);
  };
  return (
    <>
      <div className={classes.tools}>
        <TextInput
          size="xs"
          type="search"
          aria-label={t`Find in the log`}
          placeholder={t`Find in the log`}
          value={words}
          onChange={(event) => setWords(event.currentTarget.value)}
        />
        <NativeSelect
          size="xs"
          aria-label={t`Least level`}
          data={[
            { value: "debug", label: t`all levels` },
            { value: "info", label: t`info and above` },
            { value: "warning", label: t`warnings and errors` },
            { value: "error", label: t`errors` },
          ]}
          value={least}
          onChange={(event) => setLeast(event.currentTarget.value)}
        />
        <Checkbox
          size="xs"
          label={isRunning ? t`Follow (live)` : t`Stay at the end`}
          checked={isFollowed}
          onChange={(event) => setFollowed(event.currentTarget.checked)}
        />
        <Checkbox
          size="xs"
          label={t`Wrap lines`}
          checked={isWrapped}
          onChange={(event) => setWrapped(event.currentTarget.checked)}
        />
        <Button
          size="xs"
          variant="default"
          loading={whole.isPending}
          onClick={() => whole.mutate()}
        >
          <Trans>Download</Trans>
        </Button>
        <span className="dim" role="status">
          <Trans>
            {shown.length} of {lines.length} lines
          </Trans>
        </span>
      </div>
      {whole.error && <Failure error={whole.error} />}
      {/* Keyboards scroll it too. */}
      <div
        ref={box}
        className={classes.log}
        data-wrap={isWrapped || undefined}
        tabIndex={0}
        role="log"
        aria-label={t`engine log`}
        onScroll={onScroll}
      >
        {shown.map((line) => (
          <div key={line.number} data-level={line.level}>
            <span className={classes.number} aria-hidden="true">
              {line.number}
            </span>
            {line.text || " "}
          </div>
        ))}
        {shown.length === 0 && (
          <p className="dim">
            <Trans>No line has these words at this level.</Trans>
          </p>
        )}
      </div>
    </>
  );
}
