import type { ReservationView } from "@schemas/messages";
import { moment, roughly, secondsSince } from "@/lib/time";

/** When a holder is done, where it said how long it takes; else what is left of its lease. */
export function heldUntil(reservation: ReservationView, nowMs: number): string | null {
  const expected = reservation.request.expected_duration_seconds;
  if (reservation.granted_at && expected) {
    const endMs = Date.parse(reservation.granted_at) + expected * 1000;
    if (endMs > nowMs) return `until about ${moment(new Date(endMs).toISOString(), nowMs)}`;
  }
  const secondsOver = secondsSince(reservation.lease_expires_at, nowMs);
  if (secondsOver === null) return null;
  return secondsOver < 0 ? `lease ${roughly(Math.ceil(-secondsOver))}` : "lease over";
}
