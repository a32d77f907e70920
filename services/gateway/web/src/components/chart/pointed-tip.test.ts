import type { ECharts } from "echarts/core";
import { afterEach, expect, test } from "vitest";
import { MOST_ROWS, nearestRows, pointAt, pointedTip } from "./pointed-tip";

const chartAt = (value: number) => ({ convertFromPixel: () => value }) as unknown as ECharts;
const lines = (count: number) =>
  Array.from({ length: count }, (_, index) => ({ type: "line" as const, name: `GPU ${index}` }));
const pointed = (count: number) =>
  Array.from({ length: count }, (_, index) => ({
    seriesIndex: index,
    seriesName: `GPU <${index}>`,
    marker: "*",
    value: [0, index],
    axisValueLabel: "12:00",
  }));

const GROUPED = { pointerY: () => null, isGrouped: true };

afterEach(() => pointAt(null));

test("of many series the ten nearest to the pointer are told, the highest first", () => {
  const rows = Array.from({ length: 128 }, (_, value) => ({
    name: "",
    marker: "",
    value,
    text: String(value),
  }));

  const values = nearestRows(rows, 50).map((row) => row.value);

  expect(values).toHaveLength(MOST_ROWS);
  expect(values).toEqual(values.toSorted((a, b) => b - a));
  expect(values.every((value) => Math.abs(value - 50) <= 5)).toBe(true);
});

test("the tip counts what it leaves out, and a name is text in it", () => {
  const chart = chartAt(127);
  const format = pointedTip(chart, { series: lines(128) }, { pointerY: () => 7, isGrouped: false });

  const words = format?.(pointed(128)) ?? "";

  expect(words).toMatch(/^12:00<br>\*GPU &lt;127&gt; <b>127<\/b>/);
  expect(words).toContain("and 118 more, further from the pointer");
});

test("only the chart that is pointed at has words", () => {
  const [chart, other] = [chartAt(1), chartAt(1)];
  const format = pointedTip(chart, { series: lines(2) }, GROUPED);

  pointAt(other);
  expect(format?.(pointed(2))).toBe("");
  pointAt(chart);
  expect(format?.(pointed(2))).not.toBe("");
});

test("a chart's own words stay its own while it is pointed at", () => {
  const [chart, other] = [chartAt(1), chartAt(1)];
  const format = pointedTip(chart, { tooltip: { formatter: () => "own" } }, GROUPED);

  expect(format?.([])).toBe("own");
  pointAt(other);
  expect(format?.([])).toBe("");
});
