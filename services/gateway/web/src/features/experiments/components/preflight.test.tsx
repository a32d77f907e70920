import { renderToStaticMarkup } from "react-dom/server";
import { expect, test } from "vitest";
import type { Finding } from "@schemas/messages";
import { PreflightBlock } from "./preflight";

const finding: Finding = {
  verdict: "case_by_case",
  rule: "runtime_unknown",
  message: "image vllm does not tell its CUDA here",
  action: "name a tag that tells it",
  source: "accelerator guide",
  subject: "cuda",
};

test("each finding is shown with its verdict, what to do, and by which rule", () => {
  const shown = renderToStaticMarkup(<PreflightBlock findings={[finding, { ...finding, rule: "bfloat16", action: "" }]} />);

  expect(shown).toContain("cuda, case by case: image vllm does not tell its CUDA here; name a tag that tells it");
  expect(shown).toContain('title="runtime_unknown: accelerator guide"');
  expect(shown.match(/<li/g)).toHaveLength(2);
  expect(shown).toContain("here</li>");
});
