import { expect, test } from "vitest";
import type { AuditEntry } from "@schemas/messages";
import { ACTIONS, auditChanges, auditWords } from "./audit-words";

const entry = (fields: Partial<AuditEntry>): AuditEntry =>
  ({
    kind: "change",
    method: "POST",
    status: 200,
    before: null,
    after: null,
    count: 1,
    reason: "",
    ...fields,
  }) as AuditEntry;
const sentence = (path: string, fields: Partial<AuditEntry> = {}) =>
  auditWords(entry({ path: `/api/v1${path}`, ...fields })).sentence;

test("a change of a node names it, and the GPU that it was of", () => {
  const after = { cordon: null, cordoned_gpus: { "GPU-51a7ed00-0001": {} } };

  expect(sentence("/nodes/gpu-07/drain")).toBe("drained node gpu-07");
  expect(
    sentence("/nodes/gpu-07/cordon", { before: { cordon: null, cordoned_gpus: {} }, after }),
  ).toBe("cordoned GPU …d00-0001 of node gpu-07");
});

test("a reservation names its size and holder, and whether it waits", () => {
  const after = { holder: "marek", state: "queued", request: { gpus: 2, nodes: 1 } };

  expect(sentence("/reservations", { status: 201, after })).toBe("asked for 2 GPUs for marek");
  expect(sentence("/reservations", { status: 201, after: { ...after, state: "granted" } })).toBe(
    "reserved 2 GPUs for marek",
  );
});

test("a task is named by what people call it, and is a way to its page", () => {
  const id = "01a222cf-b977-71f5-af93-827a91fc5fd0";
  const path = `/api/v1/tasks/${id}/cancel`;
  const words = auditWords(entry({ path, before: { task_name: "chat", state: "running" } }));

  expect(words).toEqual({ sentence: "cancelled task chat", place: { kind: "task", id } });
});

test("what has no words is told by its address, a command by its tag", () => {
  expect(sentence("/moon-phases")).toBe("POST /moon-phases");
  expect(auditWords(entry({ method: "NATS", path: "scheduler.cordon/gpu-07" })).sentence).toBe(
    "sent cordon of gpu-07 over NATS",
  );
});

test("actions are called as the API calls its operations", () => {
  const values = ACTIONS.map(({ value }) => value);

  expect(values).toContain("label_node");
  expect(values).toContain("cordon");
});

test("a cordon of a node is told once, by its reason", () => {
  const cordon = { cause: "operator", reason: "new fan" };
  const before = { cordon: null, cordoned_gpus: {} };
  const after = { cordon, cordoned_gpus: { "GPU-1": cordon, "GPU-2": cordon } };

  expect(auditChanges(entry({ before, after }))).toEqual(["cordon: new fan"]);
});
