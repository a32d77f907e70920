import type { EChartsOption } from "echarts";
import { TIP_CLASS } from "./chart-cursor";

/** A colour of the page as it is now, dark or light: `chartToken("bad")`. */
export function chartToken(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--gs-${name}`).trim();
}

/** The categorical scale, in its order. */
export function seriesColors(): string[] {
  return [1, 2, 3, 4, 5, 6, 7, 8].map((index) => chartToken(`series-${index}`));
}

/** An option in the page's colours, with what every chart has; it keeps what it says itself. */
export function dressOption(title: string, option: EChartsOption): EChartsOption {
  const axis = {
    axisLine: { lineStyle: { color: chartToken("strong-line") } },
    axisLabel: { color: chartToken("dim"), hideOverlap: true },
    nameTextStyle: { color: chartToken("dim") },
    splitLine: { lineStyle: { color: chartToken("line") } },
  };
  const dress = (options: unknown): unknown => {
    if (Array.isArray(options)) return options.map(dress);
    const { axisLabel } = options as { axisLabel?: object };
    return { ...axis, ...(options as object), axisLabel: { ...axis.axisLabel, ...axisLabel } };
  };
  const axes = Object.fromEntries(
    (["xAxis", "yAxis", "parallelAxis"] as const)
      .filter((name) => option[name])
      .map((name) => [name, dress(option[name])]),
  );
  const [tooltip] = [option.tooltip].flat();
  return {
    aria: { enabled: true, label: { description: title } },
    animation: false,
    color: seriesColors(),
    textStyle: { fontFamily: "system-ui, sans-serif", color: chartToken("text") },
    grid: { left: 56, right: 16, top: 28, bottom: 40 },
    legend: {
      top: 0,
      right: 0,
      textStyle: { color: chartToken("dim") },
      itemHeight: 14,
      itemWidth: 14,
      icon: "roundRect",
      itemGap: 12,
      type: "scroll",
      pageIconColor: chartToken("accent"),
      pageIconInactiveColor: chartToken("line"),
      pageTextStyle: { color: chartToken("dim") },
    },
    // The tool itself is not shown: dragging zooms at once.
    toolbox: { itemSize: 0, feature: { dataZoom: { yAxisIndex: "none" } } },
    ...option,
    tooltip: {
      trigger: "axis",
      confine: true,
      backgroundColor: chartToken("bg"),
      borderColor: chartToken("line"),
      textStyle: { color: chartToken("text"), fontSize: 12 },
      className: TIP_CLASS,
      // One that fades in has no words yet as the cursor reads it.
      transitionDuration: 0,
      ...tooltip,
    },
    ...axes,
  };
}
