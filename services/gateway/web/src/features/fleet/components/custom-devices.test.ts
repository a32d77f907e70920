import { expect, test } from "vitest";
import type { ResourceDefinition } from "@schemas/messages";
import { descriptionIn } from "./custom-devices";

test("a description is in the reader's language, else in the other one", () => {
  const both = { description_en: "memory", description_zh: "显存" } as ResourceDefinition;
  const english = { ...both, description_zh: "" };

  expect(descriptionIn(both, "zh-CN")).toEqual(["显存", "zh"]);
  expect(descriptionIn(both, "de")).toEqual(["memory", "en"]);
  expect(descriptionIn(english, "zh")).toEqual(["memory", "en"]);
});
