import { expect, test } from "vitest";
import type { Reason, ReservationView } from "@schemas/messages";
import { blockersOf, isOverQuota, withoutUnfit } from "./blockers";

const reason = (code: Reason["code"], device_uuid: string | null = null): Reason => ({
  code,
  message: code,
  node_id: "n",
  device_uuid,
});
const reservation = (holder: string, ...uuids: string[]) =>
  ({
    holder,
    reservation_id: `id-of-${holder}`,
    devices: uuids.map((uuid) => ({ uuid })),
  }) as ReservationView;

test("GPUs that could never serve the request are counted, not listed", () => {
  const reasons = [
    reason("held", "a"),
    reason("model_mismatch", "b"),
    reason("held", "b"),
    reason("too_few_devices"),
  ];

  expect(withoutUnfit(reasons)).toEqual({
    reasons: [reason("held", "a"), reason("too_few_devices")],
    unfit: 1,
  });
});

test("who blocks is who holds GPUs that fit, by name, most first", () => {
  const reasons = [
    ...["a", "b", "c", "d"].map((uuid) => reason("held", uuid)),
    reason("model_mismatch", "e"),
    reason("held", "e"),
  ];
  const holding = [
    reservation("anna", "a"),
    reservation("experiment/01a/sweep#1", "b"),
    reservation("experiment/01b/sweep#1", "c", "d"),
    reservation("elsewhere", "e"),
  ];

  const blockers = blockersOf(reasons, holding);

  expect(blockers.map(({ name, gpus }) => [name, gpus])).toEqual([
    ["sweep #1", 3],
    ["anna", 1],
  ]);
});

test("a namespace's quota is told from a lack of GPUs", () => {
  expect(isOverQuota([reason("over_quota")])).toBe(true);
  expect(isOverQuota([reason("held", "a")])).toBe(false);
});
