import { expect, test } from "vitest";
import type { ReservationView } from "@schemas/messages";
import { agendaOf } from "./agenda";

const NOW = Date.parse("2026-01-02T10:00:00Z");
const reservation = (holder: string, fields: object): ReservationView =>
  ({
    reservation_id: holder,
    holder,
    requester: "",
    namespace: "a",
    devices: [],
    granted_at: null,
    request: { gpus: 2, nodes: 3 },
    ...fields,
  }) as unknown as ReservationView;

test("expected ends and starts are in the order of their times", () => {
  const holding = [
    reservation("long", {
      granted_at: "2026-01-02T09:00:00Z",
      devices: [{}, {}],
      request: { expected_duration_seconds: 4 * 3600 },
    }),
    reservation("open", { granted_at: "2026-01-02T09:00:00Z" }),
    reservation("overdue", {
      granted_at: "2026-01-02T09:00:00Z",
      request: { expected_duration_seconds: 60 },
    }),
  ];
  const starts = [
    { of: reservation("experiment/x/next#1", {}), at: "2026-01-02T11:00:00Z" },
    { of: reservation("nobody knows", {}), at: null },
  ];

  const entries = agendaOf(holding, starts, NOW);

  expect(entries.map(({ kind, name, gpus }) => [kind, name, gpus])).toEqual([
    ["starts", "next #1", 6],
    ["ends", "long", 2],
  ]);
});
