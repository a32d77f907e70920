import type { ECharts } from "echarts/core";
import { csvOf, download } from "@/lib/csv";
import type { ChartTable } from "./chart-rows";
import { chartToken } from "./theme";

/** What saves a chart that is drawn, by the form of its file. */
interface DrawnChart {
  csv: () => void;
  png: () => void;
}

const drawn = new Set<DrawnChart>();

/** Until the function that it returns is called, the chart is one of all. */
export function showChart(chart: DrawnChart): () => void {
  drawn.add(chart);
  return () => drawn.delete(chart);
}

/** A file for each chart of the page, in the order in which they were drawn. */
export function downloadAll(form: keyof DrawnChart): void {
  drawn.forEach((chart) => chart[form]());
}

export function downloadCsv(title: string, { columns, rows }: ChartTable): void {
  download(`${title}.csv`, csvOf(columns, rows), "text/csv");
}

export function downloadPng(title: string, chart: ECharts): void {
  const backgroundColor = chartToken("bg");
  download(`${title}.png`, chart.getDataURL({ pixelRatio: 2, backgroundColor }));
}
