import { expect, test } from "vitest";
import type { ReservationView } from "@schemas/messages";
import { heldUntil } from "./held-until";

const NOW = Date.parse("2026-01-02T10:00:00Z");
const reservation = (fields: object): ReservationView =>
  ({ request: {}, granted_at: null, lease_expires_at: null, ...fields }) as ReservationView;

test("a holder that said how long is there until then, any other for its lease", () => {
  const lease_expires_at = "2026-01-02T10:00:25Z";
  const granted_at = "2026-01-02T09:59:00Z";

  expect(heldUntil(reservation({ lease_expires_at }), NOW)).toBe("lease 25 s");
  expect(
    heldUntil(
      reservation({ lease_expires_at, granted_at, request: { expected_duration_seconds: 600 } }),
      NOW,
    ),
  ).toMatch(/^until about /);
  expect(
    heldUntil(
      reservation({ lease_expires_at, granted_at, request: { expected_duration_seconds: 30 } }),
      NOW,
    ),
  ).toBe("lease 25 s");
});

test("a lease that has ended or is not known has nothing left", () => {
  expect(heldUntil(reservation({ lease_expires_at: "2026-01-02T09:59:59Z" }), NOW)).toBe(
    "lease over",
  );
  expect(heldUntil(reservation({}), NOW)).toBeNull();
});
