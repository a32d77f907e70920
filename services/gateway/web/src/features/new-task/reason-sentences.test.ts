import { expect, test } from "vitest";
import type { Reason } from "@schemas/messages";
import { reasonSentences } from "./reason-sentences";

const heldBy = (index: number): Reason => ({
  code: "held",
  message: `GPU ${index} on a is held by anna`,
  node_id: "a",
  device_uuid: `GPU-${index}`,
});

test("reasons of a kind are a sentence, and what the request itself rules out comes last", () => {
  const elsewhere: Reason = {
    code: "node_mismatch",
    message: "b is not one of a",
    node_id: "b",
    device_uuid: null,
  };
  const few: Reason = {
    code: "too_few_devices",
    message: "a has 0 of 1 GPU asked for",
    node_id: "a",
    device_uuid: null,
  };

  const sentences = reasonSentences({
    reasons: [elsewhere, heldBy(0), heldBy(1), few],
    reasons_left_out: { held: 5 },
  });

  expect(sentences).toEqual([
    "GPU 0 on a is held by anna, and 6 more GPUs with the same reason",
    "a has 0 of 1 GPU asked for",
    "b is not one of a",
  ]);
});
