import { expect, test } from "vitest";
import type { SeriesView } from "@schemas/messages";
import { seriesChart } from "./series-chart";

test("what is drawn and what the table says are the same values", () => {
  const at = "2026-01-01T00:00:00Z";
  const device = { node_id: "n", device_uuid: "GPU-1", index: 0, points: [[at, 1024, 4096, 2048]] };
  const view = { devices: [device] } as unknown as SeriesView;

  const { option, table } = seriesChart(view, {
    unit: "GiB",
    colors: ["#000"],
    scale: (value) => value / 1024,
    name: () => "GPU 0",
  });

  const drawn = (option.series as { data: unknown[] }[]).map((series) => series.data);
  expect(drawn).toEqual([[[at, 1]], [[at, 3]], [[at, 2]]]); // least, the band above it, mean
  expect(table.rows).toEqual([[at, "n", 0, 2, 1, 4]]);
});

test("how much there is stands over one series alone", () => {
  const at = "2026-01-01T00:00:00Z";
  const line = {
    points: [[at, 1024, 4096, 2048]] as unknown as SeriesView["devices"][number]["points"],
  };
  const shown = {
    unit: "GiB",
    colors: ["#000"],
    scale: (mb: number) => mb / 1024,
    name: () => "node",
    rowOf: () => ["n"],
  };
  const drawn = (lines: (typeof line)[]) =>
    seriesChart({ devices: lines }, { ...shown, totalOf: () => 8192 }).option;

  expect(drawn([line]).yAxis).toMatchObject({
    min: 0,
    max: 8,
    axisLabel: { showMaxLabel: false },
  });
  expect(drawn([line, line]).yAxis).not.toHaveProperty("max");
});
