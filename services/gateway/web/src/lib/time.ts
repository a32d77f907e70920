import { t } from "@lingui/core/macro";
import { useSyncExternalStore } from "react";
import { UNKNOWN, type Maybe } from "./units";

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** At most two units: < 0.1 s, 42 s, 3 min 5 s, 2 h 10 min, 4 d 3 h. */
export function duration(seconds: Maybe): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return UNKNOWN;
  const total = Math.max(0, seconds);
  if (total > 0 && total < 0.05) return "< 0.1 s";
  if (total < 10 && total % 1 >= 0.05) return `${total.toFixed(1)} s`;
  const parts: string[] = [];
  let rest = Math.round(total);
  for (const [size, unit] of [
    [DAY, "d"],
    [HOUR, "h"],
    [MINUTE, "min"],
    [1, "s"],
  ] as const) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count > 0) parts.push(`${count} ${unit}`);
    else if (parts.length > 0) break;
    if (parts.length === 2) break;
  }
  return parts.join(" ") || "0 s";
}

/** What lies far ahead changes by the minute: 42 s, 3 min 5 s, 54 min, 2 h 10 min. */
export function roughly(seconds: number): string {
  return duration(seconds < 10 * MINUTE ? seconds : Math.round(seconds / MINUTE) * MINUTE);
}

export function secondsSince(at: string | null | undefined, nowMs: number): number | null {
  return at ? (nowMs - Date.parse(at)) / 1000 : null;
}

/** In the viewer's zone: "today 16:29", "yesterday 16:29", "28 Nov 16:29"; of another year with it. */
export function moment(at: string | null | undefined, nowMs: number = Date.now()): string {
  if (!at) return UNKNOWN;
  const date = new Date(at);
  return `${dayOf(date, new Date(nowMs))} ${timeOf(date)}`;
}

const timeOf = (date: Date): string =>
  date.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

/** The same without "today", in a sentence: "16:29", "28 Nov 16:29". */
export function shortMoment(at: string, nowMs: number): string {
  const date = new Date(at);
  const time = timeOf(date);
  return date.toDateString() === new Date(nowMs).toDateString()
    ? time
    : `${dayOf(date, new Date(nowMs))} ${time}`;
}

/** The same with the zone: "today 16:29 (CET)". */
export function zonedMoment(at: string | null | undefined, nowMs: number = Date.now()): string {
  if (!at) return UNKNOWN;
  return `${moment(at, nowMs)} (${zoneName(new Date(at))})`;
}

/** To the second, where moments lie close to each other: "today 16:29:11". */
export function preciseMoment(at: string, nowMs: number = Date.now()): string {
  const date = new Date(at);
  const time = date.toLocaleTimeString(undefined, { hourCycle: "h23" });
  return `${dayOf(date, new Date(nowMs))} ${time}`;
}

/** "3 min ago", "in 2 h 10 min". */
export function agoText(at: string, nowMs: number): string {
  const seconds = (nowMs - Date.parse(at)) / 1000;
  const ahead = roughly(-seconds);
  if (seconds < 0) return t`in ${ahead}`;
  if (seconds < 1) return t`now`;
  const age = roughly(Math.round(seconds));
  return t`${age} ago`;
}

const DAY_MS = DAY * 1000;

function dayOf(date: Date, now: Date): string {
  const midnight = (of: Date) => new Date(of.getFullYear(), of.getMonth(), of.getDate()).getTime();
  const days = Math.round((midnight(date) - midnight(now)) / DAY_MS);
  if (days === 0) return t`today`;
  if (days === -1) return t`yesterday`;
  if (days === 1) return t`tomorrow`;
  const isThisYear = date.getFullYear() === now.getFullYear();
  const year = isThisYear ? {} : { year: "numeric" as const };
  return date.toLocaleDateString(undefined, { day: "numeric", month: "short", ...year });
}

/** "CET", "UTC"; an offset where the zone has no short name. */
export function zoneName(date: Date): string {
  const parts = new Intl.DateTimeFormat(undefined, { timeZoneName: "short" }).formatToParts(date);
  return parts.find(({ type }) => type === "timeZoneName")?.value ?? "";
}

/** Whole, with the zone: for a title on hover. */
export function fullMoment(at: string): string {
  return new Date(at).toLocaleString(undefined, { dateStyle: "full", timeStyle: "long" });
}

const tickers = new Set<() => void>();
let nowMs = Date.now();
let timer: ReturnType<typeof setInterval> | undefined;

function subscribe(onTick: () => void): () => void {
  tickers.add(onTick);
  timer ??= setInterval(() => {
    nowMs = Date.now();
    for (const tell of tickers) tell();
  }, 1000);
  return () => {
    tickers.delete(onTick);
    if (tickers.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}

/** One clock for all that shows an age or a countdown, each second. */
export function useNow(): number {
  return useSyncExternalStore(subscribe, () => nowMs);
}
