import { expect, test } from "vitest";
import type { LevelResult } from "@schemas/messages";
import { levelColumns } from "./levels";

const names = (level: Partial<LevelResult>) =>
  levelColumns([{ prefix_cache: null, ...level } as LevelResult]).map(({ name }) => name);

test("levels of embeddings have items in place of times and rates of tokens", () => {
  const chat = names({ scenario: "D(1,1)", items_per_second: null });
  const embeddings = names({ scenario: "E(64)", items_per_second: 40 });

  expect(chat).toEqual(expect.arrayContaining(["TTFT", "TPOT", "Output"]));
  expect(chat).not.toContain("Items");
  expect(embeddings).toEqual(expect.arrayContaining(["E2E", "Items", "Total"]));
  expect(embeddings.filter((name) => ["TTFT", "TPOT", "Output"].includes(name))).toEqual([]);
});
