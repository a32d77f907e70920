import { expect, test } from "vitest";
import type { GpuView, ReservationView } from "@schemas/messages";
import { faultMarks, holderBands } from "./gpu-chart-marks";

const at = (minute: number) => new Date(Date.UTC(2026, 0, 1, 12, minute)).toISOString();
const SPAN = { startMs: Date.parse(at(10)), endMs: Date.parse(at(20)) };

function reservation(holder: string, from: number, to: number | null, uuid = "GPU-1") {
  return {
    holder,
    granted_at: at(from),
    ended_at: to === null ? null : at(to),
    devices: [{ uuid }],
  } as ReservationView;
}

test("holders are bands of the time that is shown, the first one first", () => {
  const bands = holderBands(
    "GPU-1",
    [
      reservation("experiment/01a/sweep#2", 15, null),
      reservation("anna", 5, 12),
      reservation("long-gone", 1, 9),
      reservation("elsewhere", 11, 12, "GPU-2"),
    ],
    SPAN,
    ["red", "blue"],
    400,
  );

  expect(bands.map(({ name, color }) => [name, color])).toEqual([
    ["anna", "red"],
    ["sweep #2", "blue"],
  ]);
  expect(bands[0]?.startMs).toBe(SPAN.startMs);
  expect(bands[1]?.endMs).toBe(SPAN.endMs);
});

test("a name is cut to its band, or left out where that is narrow", () => {
  const names = (widthPx: number) =>
    holderBands("GPU-1", [reservation("embedding-service", 10, 15)], SPAN, ["red"], widthPx).map(
      ({ name }) => name,
    );

  expect(names(400)).toEqual(["embedding-service"]);
  expect(names(100)).toEqual(["embeddi…"]);
  expect(names(30)).toEqual([""]);
});

test("faults of the shown time are marked, an XID by its number", () => {
  const gpu = {
    recent_faults: [
      { xid: 79, change: "xid", occurred_at: at(11) },
      { xid: null, change: "ecc_uncorrected", occurred_at: at(12) },
      { xid: 31, change: "xid", occurred_at: at(1) },
    ],
  } as GpuView;

  expect(faultMarks(gpu, SPAN, "red").map(({ name }) => name)).toEqual([
    "XID 79",
    "ecc uncorrected",
  ]);
});
