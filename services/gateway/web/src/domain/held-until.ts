import { t } from "@lingui/core/macro";
import type { ReservationView } from "@schemas/messages";
import { roughly, shortMoment, secondsSince } from "@/lib/time";

/** When a holder is done, where it said how long it takes; else what is left of its lease. */
export function heldUntil(reservation: ReservationView, nowMs: number): string | null {
  const expected = reservation.request.expected_duration_seconds;
  if (reservation.granted_at && expected) {
    const endMs = Date.parse(reservation.granted_at) + expected * 1000;
    const end = shortMoment(new Date(endMs).toISOString(), nowMs);
    if (endMs > nowMs) return t`until about ${end}`;
  }
  const secondsOver = secondsSince(reservation.lease_expires_at, nowMs);
  if (secondsOver === null) return null;
  return secondsOver < 0 ? t`lease ${roughly(Math.ceil(-secondsOver))}` : t`lease over`;
}
