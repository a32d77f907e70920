import { expect, test } from "vitest";
import { termsIn } from "../../glossary";
import { loadedTerms, meaningOf } from "./terms";

test("tables of a page have words with their meanings, without marks", () => {
  const page =
    "| word | meaning |\n|---|---|\n| **ttft, tpot** | time *to* a `token`, see [there](a.md#b) |\ntext\n";

  expect(termsIn(page)).toEqual({
    ttft: "time to a token, see there",
    tpot: "time to a token, see there",
  });
});

test("words of the page are found in the glossary of the documentation", async () => {
  await loadedTerms;

  expect(meaningOf("Coverage")).toMatch(/share of a window/);
  expect(meaningOf("ttft, mean (ms)")).toBe(meaningOf("ttft"));
  expect(meaningOf("Holders")).toBe(meaningOf("holder"));
  expect(meaningOf("no such word")).toBeUndefined();
});
