import { expect, test } from "vitest";
import type { ReservationView } from "@schemas/messages";
import { rangesOf } from "@/lib/ranges";
import { devicesText, usageText } from "./usage-text";

const reservation = (...places: [string, number][]) =>
  ({
    node_ids: [],
    devices: places.map(([node_id, index]) => ({
      node_id,
      index,
      uuid: `GPU-${node_id}-${index}`,
    })),
  }) as unknown as ReservationView;

test("GPUs of a node are listed as ranges", () => {
  expect(rangesOf([3, 0, 1, 2, 6])).toBe("0-3, 6");
  expect(devicesText(reservation(["a", 0], ["a", 1], ["b", 7]))).toBe("a: 0-1; b: 7");
});

test("a shell is given the GPUs by their UUIDs, each node its own", () => {
  expect(usageText(reservation(["a", 0], ["a", 1]))).toBe(
    "export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=GPU-a-0,GPU-a-1",
  );
  expect(usageText(reservation(["a", 0], ["b", 7]))).toMatch(/^# on a\n.*GPU-a-0\n# on b\n/);
});
