import type { ReservationView } from "@schemas/messages";
import { moment, roughly, secondsSince } from "@/lib/time";

/** When a holder is done, where it said how long it takes; else what is left of its lease. */
export function heldUntil(held: ReservationView, nowMs: number): string | null {
  const expected = held.request.expected_duration_seconds;
  if (held.granted_at && expected) {
    const endMs = Date.parse(held.granted_at) + expected * 1000;
    if (endMs > nowMs) return `until about ${moment(new Date(endMs).toISOString(), nowMs)}`;
  }
  const left = secondsSince(held.lease_expires_at, nowMs);
  if (left === null) return null;
  return left < 0 ? `lease ${roughly(Math.ceil(-left))}` : "lease over";
}
