import { expect, test } from "vitest";
import { requestText } from "./request-words";

test.each([
  [{}, "1 GPU"],
  [{ gpus: 4, gpu_models: ["H200"], min_memory_mb: 81_920 }, "4 GPUs, H200, 80\u202fGiB free each"],
  [{ gpus: 1, mig_profile: "1g.18gb" }, "1 MIG 1g.18gb"],
  [{ gpus: 16, nodes: 2, priority: 5 }, "16 GPUs, on 2 nodes, priority 5"],
])("%j is told as %s", (request, text) => {
  expect(requestText(request)).toBe(text);
});
