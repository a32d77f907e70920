import { expect, test } from "vitest";
import type { Reason } from "@schemas/messages";
import { byNodes } from "./gathered-reasons";

const reason = (message: string, device_uuid: string | null = null, node_id = "n"): Reason => ({
  code: "held",
  message,
  node_id,
  device_uuid,
});

test("GPUs of a node that have the same reason are one sentence, without their UUIDs", () => {
  const all = [
    reason("GPU 0 on n is held by ann", "GPU-a"),
    reason("GPU 1 on n is held by ann", "GPU-b"),
    reason("GPU 7 on n is held by bob", "GPU-c"),
    reason("n has 5 of 8 GPUs asked for"),
  ];

  expect(byNodes(all)).toEqual([
    {
      nodes: "n",
      sentences: [
        { message: "GPUs 0, 1: each is held by ann", title: "GPU-a, GPU-b" },
        { message: "GPU 7 is held by bob", title: "GPU-c" },
        { message: "n has 5 of 8 GPUs asked for", title: "" },
      ],
    },
  ]);
});

test("nodes that have the same reasons are told together", () => {
  const all = ["n", "m"].flatMap((node) => [
    reason(`GPU 0 on ${node} is held by ann`, `GPU-${node}`, node),
    reason(`${node} has 0 of 8 GPUs asked for`, null, node),
  ]);

  expect(byNodes([...all, reason("GPU 0 on o is free", "GPU-o", "o")])).toEqual([
    {
      nodes: "n, m",
      sentences: [
        { message: "GPU 0 is held by ann", title: "" },
        { message: "each has 0 of 8 GPUs asked for", title: "" },
      ],
    },
    { nodes: "o", sentences: [{ message: "GPU 0 is free", title: "GPU-o" }] },
  ]);
});
