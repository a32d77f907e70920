import type { AttemptLogged, LogChunk } from "@schemas/messages";

export const MOST_LINES = 5000;

export const LOG_LEVELS = ["error", "warning", "info", "debug"] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

export interface LogLine {
  number: number;
  text: string;
  level: LogLevel;
}

const PATTERNS: [LogLevel, RegExp][] = [
  ["error", /\b(ERROR|CRITICAL|FATAL|[A-Z]\w*(Error|Exception)\b)|^E\d{4} |^(Traceback|Error)\b/],
  ["warning", /\b(WARN|WARNING)\b|^W\d{4} |\w+Warning:/],
  ["debug", /\b(DEBUG|TRACE)\b|^D\d{4} /],
  ["info", /\b(INFO|NOTICE)\b|^I\d{4} /],
];
/** Begins a line of its own, not one that goes on with what stands above. */
const BEGINS = /^\S/;

/** A line without a level of its own that is indented, as those of a traceback are, has that of the line above. */
export function levelled(texts: string[]): LogLine[] {
  let above: LogLevel = "info";
  return texts.map((text, index) => {
    const level = PATTERNS.find(([, pattern]) => pattern.test(text))?.[0];
    above = level ?? (BEGINS.test(text) ? "info" : above);
    return { number: index + 1, text, level: above };
  });
}

/** Lines of at least this level that have the words, in any case. */
export function filtered(lines: LogLine[], words: string, least: LogLevel): LogLine[] {
  const search = words.toLowerCase();
  const most = LOG_LEVELS.indexOf(least);
  return lines.filter(
    ({ text, level }) => LOG_LEVELS.indexOf(level) <= most && text.toLowerCase().includes(search),
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
