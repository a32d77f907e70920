import { expect, test } from "vitest";
import { serveCommand } from "./serve-command";

test("a command can be typed as it stands, with what was switched off", () => {
  const command = serveCommand({
    engine: "vllm",
    model: "/models/my model",
    parameters: { "max-num-seqs": 64, enable_prefix_caching: true, "enforce-eager": false },
  });

  expect(command).toBe(
    "vllm serve '/models/my model' --max-num-seqs 64 --enable-prefix-caching --no-enforce-eager",
  );
});

test("a switch without a negative form is left out where it is off", () => {
  const parameters = { "disable-radix-cache": false };

  const command = serveCommand({ engine: "sglang", model: "owner/name", parameters });

  expect(command).toBe("python3 -m sglang.launch_server --enable-metrics --model-path owner/name");
});

test("a model of a hub has the flag that the engine has for it", () => {
  expect(serveCommand({ engine: "llamacpp", model: "owner/name" })).toContain(
    "--hf-repo owner/name",
  );
  expect(serveCommand({ engine: "llamacpp", model: "/models/m.gguf" })).toContain(
    "--model /models/m.gguf",
  );
});

test("an engine that people cannot start has no command", () => {
  expect(serveCommand({ engine: "simulated", model: "m" })).toBeNull();
});
