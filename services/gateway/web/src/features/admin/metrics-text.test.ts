import { expect, test } from "vitest";
import { metricsIn } from "./metrics-text";

test("metrics are read with their labels, others are left out", () => {
  const text = [
    "# HELP up whether",
    'lag_messages{consumer="a",stream="S \\"x\\""} 3.0',
    "outbox_age_seconds 0.25",
    "process_cpu 1",
  ].join("\n");

  expect(metricsIn(text, ["lag_", "outbox_"])).toEqual([
    { name: "lag_messages", labels: { consumer: "a", stream: 'S "x"' }, value: 3 },
    { name: "outbox_age_seconds", labels: {}, value: 0.25 },
  ]);
});
