import { Button, Loader, useComputedColorScheme } from "@mantine/core";
import type { EChartsOption } from "echarts";
import type { ECElementEvent, ECharts } from "echarts/core";
import { useEffect, useRef, useState, type ReactNode } from "react";
import { csvOf, download } from "@/lib/csv";
import { Term } from "../term";
import { ChartRows, type ChartTable } from "./chart-rows";
import classes from "./chart.module.css";
import { chartToken, dressed } from "./theme";

interface ChartProps {
  title: string;
  /** Memoized by the caller. Axes name their unit and statistic. */
  option: EChartsOption;
  /** What is shown, as the CSV has it; without rows the chart says `empty`. */
  table: ChartTable;
  empty: string;
  heightPx?: number;
  /** Charts of one group share their crosshair and zoom. */
  group?: string;
  onSelect?: (event: ECElementEvent) => void;
  /** Words of the title and the axes that the glossary explains. */
  terms?: string[];
  /** What of it is shown, beside its title. */
  choices?: ReactNode;
}

/** Drag to zoom, a legend that toggles; a table, CSV and PNG of what is shown. */
export function Chart(props: ChartProps) {
  const { title, option, table, empty, heightPx = 220, group, onSelect, terms, choices } = props;
  const element = useRef<HTMLDivElement>(null);
  const select = useRef(onSelect);
  const scheme = useComputedColorScheme("light");
  const [chart, setChart] = useState<ECharts>();
  const [isTable, setTable] = useState(false);
  const isEmpty = table.rows.length === 0;

  useEffect(() => {
    select.current = onSelect;
  }, [onSelect]);

  useEffect(() => {
    if (isEmpty) return;
    let made: ECharts | undefined;
    let isGone = false;
    const observer = new ResizeObserver(() => made?.resize());
    void import("./echarts").then(({ init, connect }) => {
      if (isGone || !element.current) return;
      made = init(element.current);
      if (group) {
        made.group = group;
        connect(group);
      }
      made.on("click", (event) => select.current?.(event as ECElementEvent));
      observer.observe(element.current);
      setChart(made);
    });
    return () => {
      isGone = true;
      observer.disconnect();
      made?.dispose();
      setChart(undefined);
    };
  }, [group, isEmpty]);

  useEffect(() => {
    if (!chart || chart.isDisposed()) return;
    chart.setOption(dressed(title, option), { notMerge: true });
    chart.dispatchAction({
      type: "takeGlobalCursor",
      key: "dataZoomSelect",
      dataZoomSelectActive: true,
    });
  }, [chart, option, scheme, title]);

  return (
    <figure className={classes.chart} data-chart={title}>
      <figcaption className={classes.caption}>
        <span>{title}</span>
        {terms?.map((term) => (
          <span key={term} className={classes.term}>
            <Term>{term}</Term>
          </span>
        ))}
        {choices}
        {chart && (
          <span className={classes.tools}>
            <Tool
              text="Reset"
              label={`Reset ${title} to its whole range`}
              onClick={() => chart.dispatchAction({ type: "dataZoom", start: 0, end: 100 })}
            />
            <Tool
              text="Table"
              label={`Table of ${title}`}
              isPressed={isTable}
              onClick={() => setTable(!isTable)}
            />
            <Tool
              text="CSV"
              label={`CSV of ${title}`}
              onClick={() => download(`${title}.csv`, csvOf(table.columns, table.rows), "text/csv")}
            />
            <Tool
              text="PNG"
              label={`PNG of ${title}`}
              onClick={() => {
                const backgroundColor = chartToken("bg");
                download(`${title}.png`, chart.getDataURL({ pixelRatio: 2, backgroundColor }));
              }}
            />
          </span>
        )}
      </figcaption>
      {isEmpty ? (
        <div className={classes.empty} style={{ height: heightPx }}>
          {empty}
        </div>
      ) : (
        <div className={classes.frame} style={{ height: heightPx }}>
          <div ref={element} className={classes.canvas} />
          {!chart && <Loader size="sm" className={classes.loader} role="status" aria-label="loading the chart" />}
        </div>
      )}
      {isTable && !isEmpty && <ChartRows title={title} table={table} />}
    </figure>
  );
}

interface ToolProps {
  text: string;
  label: string;
  isPressed?: boolean;
  onClick: () => void;
}

function Tool({ text, label, isPressed, onClick }: ToolProps) {
  return (
    <Button
      variant={isPressed ? "light" : "subtle"}
      color="gray"
      size="compact-xs"
      fw={400}
      aria-label={label}
      aria-pressed={isPressed}
      onClick={onClick}
    >
      {text}
    </Button>
  );
}
