import { t } from "@lingui/core/macro";
import { ActionIcon, Loader, Menu, useComputedColorScheme } from "@mantine/core";
import type { EChartsOption } from "echarts";
import type { ECElementEvent, ECharts } from "echarts/core";
import {
  useCallback,
  useEffect,
  useRef,
  useState,
  type KeyboardEvent,
  type ReactNode,
} from "react";
import { loadPart } from "@/lib/parts";
import { Icon } from "../icon";
import { Term } from "../term";
import {
  hiddenIn,
  hidePlace,
  movedPlace,
  showPlace,
  tipText,
  countPoints,
  type ChartPlace,
} from "./chart-cursor";
import { ChartRows, type ChartTable } from "./chart-rows";
import { downloadCsv, downloadPng, showChart } from "./downloads";
import { pointAt, pointedTip } from "./pointed-tip";
import classes from "./chart.module.css";
import { dressOption } from "./theme";

/** A point of a series, as the option gave it. */
export type ChartPoint = Pick<ECElementEvent, "data" | "dataIndex">;

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
  onSelect?: (point: ChartPoint) => void;
  /** Words of the title and the axes that the glossary explains. */
  terms?: string[];
  /** What others call what it shows: the name of a metric. */
  field?: string;
  /** What of it is shown, beside its title. */
  choices?: ReactNode;
}

/** Drag to zoom, a legend that toggles, a cursor by keys; a table, CSV and PNG of what is shown. */
export function Chart(props: ChartProps) {
  const { title, option, table, empty, heightPx = 220, group, onSelect } = props;
  const { terms, field, choices } = props;
  const element = useRef<HTMLDivElement>(null);
  const select = useRef(onSelect);
  const scheme = useComputedColorScheme("light");
  const [chart, setChart] = useState<ECharts>();
  const [isTable, setTable] = useState(false);
  const cursor = useRef<ChartPlace | null>(null);
  const pointerY = useRef<number | null>(null);
  const [announcement, setSaid] = useState("");
  const isEmpty = table.rows.length === 0;

  useEffect(() => {
    select.current = onSelect;
  }, [onSelect]);

  useEffect(() => {
    if (isEmpty) return;
    let made: ECharts | undefined;
    let isGone = false;
    const observer = new ResizeObserver(() => made?.resize());
    void loadPart(() => import("./echarts"), { waits: true }).then(({ init, connect }) => {
      if (isGone || !element.current) return;
      made = init(element.current);
      if (group) {
        made.group = group;
        connect(group);
      }
      made.on("click", (event) => select.current?.(event));
      const pointed = made;
      made.getZr().on("mousemove", ({ offsetY }) => {
        pointAt(pointed);
        pointerY.current = offsetY;
      });
      observer.observe(element.current);
      setChart(made);
    });
    return () => {
      isGone = true;
      observer.disconnect();
      made?.dispose();
      pointAt(null);
      setChart(undefined);
    };
  }, [group, isEmpty]);

  useEffect(() => {
    if (!chart || chart.isDisposed()) return;
    const dressed = dressOption(title, option);
    const formatter = pointedTip(chart, dressed, {
      pointerY: () => pointerY.current,
      isGrouped: group !== undefined,
    });
    const [common] = [dressed.tooltip].flat();
    const tooltip = { ...common, ...(formatter && { formatter }) };
    chart.setOption({ ...dressed, tooltip } as EChartsOption, { notMerge: true });
    chart.dispatchAction({
      type: "takeGlobalCursor",
      key: "dataZoomSelect",
      dataZoomSelectActive: true,
    });
    if (cursor.current) showPlace(chart, option, cursor.current);
  }, [chart, group, option, scheme, title]);

  useEffect(() => {
    if (!chart) return;
    return showChart({
      csv: () => downloadCsv(title, table),
      png: () => downloadPng(title, chart),
    });
  }, [chart, table, title]);

  const leave = useCallback(() => {
    if (chart && !chart.isDisposed() && cursor.current) hidePlace(chart);
    cursor.current = null;
    setSaid("");
  }, [chart]);

  const onKeyDown = useCallback(
    (event: KeyboardEvent) => {
      if (!chart || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
      const at = cursor.current;
      const to = movedPlace(countPoints(option, hiddenIn(chart)), at, event.key);
      if (to) {
        event.preventDefault();
        pointAt(chart);
        pointerY.current = null;
        cursor.current = to;
        showPlace(chart, option, to);
        setSaid(tipText(chart));
      } else if (at && event.key === "Enter") {
        const series = Array.isArray(option.series) ? option.series[at.series] : option.series;
        const data = (series?.data as ChartPoint["data"][] | undefined)?.[at.point];
        if (data !== undefined) select.current?.({ data, dataIndex: at.point });
      } else if (event.key === "Escape") {
        leave();
      }
    },
    [chart, leave, option],
  );

  return (
    <figure className={classes.chart} data-chart={title}>
      <figcaption className={classes.caption}>
        <span>{title}</span>
        {terms?.map((term) => (
          <span key={term} className={classes.term}>
            <Term>{term}</Term>
          </span>
        ))}
        {field && <code className={classes.field}>{field}</code>}
        {choices}
        {chart && (
          <span className={classes.tools}>
            <Menu position="bottom-end" keepMounted={false}>
              <Menu.Target>
                <ActionIcon variant="subtle" color="gray" aria-label={t`Tools of ${title}`}>
                  <Icon name="more" />
                </ActionIcon>
              </Menu.Target>
              <Menu.Dropdown>
                <Menu.Item
                  onClick={() => chart.dispatchAction({ type: "dataZoom", start: 0, end: 100 })}
                >
                  {t`Reset the zoom`}
                </Menu.Item>
                <Menu.Item onClick={() => setTable(!isTable)}>
                  {isTable ? t`Hide the table` : t`Show as a table`}
                </Menu.Item>
                <Menu.Item onClick={() => downloadCsv(title, table)}>{t`Download CSV`}</Menu.Item>
                <Menu.Item
                  onClick={() => {
                    downloadPng(title, chart);
                  }}
                >
                  {t`Download PNG`}
                </Menu.Item>
              </Menu.Dropdown>
            </Menu>
          </span>
        )}
      </figcaption>
      {isEmpty ? (
        <div className={classes.empty} style={{ height: heightPx }}>
          {empty}
        </div>
      ) : (
        // Keys reach it as they are, and its points are said as they are shown.
        // eslint-disable-next-line jsx-a11y/no-noninteractive-element-interactions
        <div
          className={classes.frame}
          style={{ height: heightPx }}
          role="application"
          aria-roledescription="chart"
          aria-label={t`${title}: arrow keys go through its values${onSelect ? t`, Enter opens one` : ""}`}
          tabIndex={0}
          onKeyDown={onKeyDown}
          onBlur={leave}
        >
          <div ref={element} className={classes.canvas} />
          {!chart && (
            <Loader
              size="sm"
              className={classes.loader}
              role="status"
              aria-label={t`loading the chart`}
            />
          )}
        </div>
      )}
      <div className="visually-hidden" role="status">
        {announcement}
      </div>
      {isTable && !isEmpty && <ChartRows title={title} table={table} />}
    </figure>
  );
}
