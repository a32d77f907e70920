import { expect, test } from "vitest";
import type { EngineSeriesView } from "@schemas/messages";
import { speedNow } from "./live-speed";

const AT = Date.parse("2026-01-01T00:00:30Z");
const view = (seconds: string) =>
  ({
    bucket_seconds: 1,
    series: { generation_tokens_per_s: [[`2026-01-01T00:00:${seconds}Z`, 800, 900, 812]] },
  }) as unknown as EngineSeriesView;

test("the newest reading of an engine is its speed, an old one is not", () => {
  expect(speedNow(view("28"), AT)).toBe(812);
  expect(speedNow(view("05"), AT)).toBeNull();
  expect(speedNow({ bucket_seconds: 1, series: {} } as unknown as EngineSeriesView, AT)).toBeNull();
});
