import { renderToStaticMarkup } from "react-dom/server";
import { expect, test } from "vitest";
import type { Finding } from "@schemas/messages";
import { Findings } from "./findings";

const finding: Finding = {
  verdict: "supported",
  rule: "driver_below_runtime",
  message: "image vllm is of CUDA 12.4",
  action: "",
  source: "accelerator guide",
  subject: "cuda",
};

test("each finding is shown once, the worst first, with what to do", () => {
  const unknown: Finding = {
    ...finding,
    verdict: "case_by_case",
    message: "it does not tell",
    action: "name a tag",
  };

  const shown = renderToStaticMarkup(
    <Findings findings={[finding, unknown, finding]} ofHowMany={3} />,
  );

  expect(shown.match(/<li/g)).toHaveLength(2);
  expect(shown.indexOf("case by case")).toBeLessThan(shown.indexOf("supported"));
  expect(shown).toContain("it does not tell; name a tag");
  expect(shown).toContain("(2 of 3 experiments)");
});
