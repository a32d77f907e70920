import { expect, test } from "vitest";
import { differingNames, parametersText } from "./parameters";

test("only what differs between configurations names them", () => {
  const all = [
    { slots: 2, seed: 1 },
    { slots: 4, seed: 1, "prefix-cache": true },
  ];

  expect(differingNames(all)).toEqual(["slots", "prefix-cache"]);
  expect(parametersText(all[1] ?? {}, differingNames(all))).toBe("slots=4 prefix-cache=true");
  expect(differingNames([{ a: 1 }])).toEqual([]);
});
