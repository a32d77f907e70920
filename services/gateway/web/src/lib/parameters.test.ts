import { expect, test } from "vitest";
import { differing, parametersText, serveCommand } from "./parameters";

test("only what differs between configurations names them", () => {
  const all = [
    { slots: 2, seed: 1 },
    { slots: 4, seed: 1, "prefix-cache": true },
  ];

  expect(differing(all)).toEqual(["slots", "prefix-cache"]);
  expect(parametersText(all[1] ?? {}, differing(all))).toBe("slots=4 prefix-cache=true");
  expect(differing([{ a: 1 }])).toEqual([]);
});

test("a command can be typed as it stands", () => {
  const command = serveCommand({
    engine: "vllm",
    model: "/models/my model",
    parameters: { "max-num-seqs": 64, "enable-prefix-caching": true, "enforce-eager": false },
  });

  expect(command).toBe("vllm serve '/models/my model' --max-num-seqs 64 --enable-prefix-caching");
  expect(serveCommand({ engine: "simulated", model: "m" })).toBeNull();
});
