import { expect, test } from "vitest";
import type { Reason } from "@schemas/messages";
import { gathered } from "./gathered-reasons";

const reason = (message: string, device_uuid: string | null = null): Reason =>
  ({ code: "held", message, node_id: "n", device_uuid }) as Reason;

test("GPUs of a node that have the same reason are one sentence, without their UUIDs", () => {
  const all = [
    reason("GPU 0 on n is held by ann", "GPU-a"),
    reason("GPU 1 on n is held by ann", "GPU-b"),
    reason("GPU 7 on n is held by bob", "GPU-c"),
    reason("n has 5 of 8 GPUs asked for"),
  ];

  expect(gathered(all)).toEqual([
    { message: "GPUs 0, 1: each is held by ann", title: "GPU-a, GPU-b" },
    { message: "GPU 7 is held by bob", title: "GPU-c" },
    { message: "n has 5 of 8 GPUs asked for", title: "" },
  ]);
});
