import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { memo, useCallback, useRef, useState, type MouseEvent } from "react";
import { useNavigate } from "react-router";
import type { GpuView } from "@schemas/messages";
import { heldBy } from "@/domain/holder";
import { gpuKey, useLiveReading } from "@/lib/live/readings";
import { paths } from "@/lib/paths";
import { useSharedSearch } from "@/lib/url-state";
import { HEAT_ENDS, HEAT_STEPS, heatStep, type HeatMetric } from "../fleet-filter";
import { colorKeyOf } from "../allocation";
import { gpuState, withReading } from "../gpu-state";
import { GpuTile } from "./gpu-tile";
import type { Holding } from "./node-row";
import classes from "./fleet-map.module.css";

interface CellsProps {
  gpus: GpuView[];
  listedAt: number;
  holding: Holding | undefined;
  metric: HeatMetric;
  /** Of holders or teams, where the metric is one of these. */
  colors: ReadonlyMap<string, number> | null;
}

interface Pointed {
  gpu: GpuView;
  left: number;
  top: number;
}

const TILE_WIDTH_PX = 240;
const TILE_HEIGHT_PX = 160;

/** A cell for each GPU; pointed at or reached by keys, it shows its tile. */
export function Cells({ gpus, listedAt, holding, metric, colors }: CellsProps) {
  const search = useSharedSearch();
  const navigate = useNavigate();
  const list = useRef<HTMLDivElement>(null);
  const [pointed, setPointed] = useState<Pointed | null>(null);

  function point(target: EventTarget): void {
    const cell = target instanceof Element ? target.closest("a") : null;
    const gpu = cell && gpus[Array.prototype.indexOf.call(list.current?.children ?? [], cell)];
    if (!gpu) return;
    const { left, bottom, top } = cell.getBoundingClientRect();
    const isLow = bottom + TILE_HEIGHT_PX > window.innerHeight;
    setPointed({
      gpu,
      left: Math.max(4, Math.min(left, window.innerWidth - TILE_WIDTH_PX - 4)),
      top: isLow ? top - TILE_HEIGHT_PX - 4 : bottom + 4,
    });
  }

  // As a router's link does; hundreds of those are slow to draw.
  const open = useCallback(
    (event: MouseEvent<HTMLAnchorElement>) => {
      if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey)
        return;
      event.preventDefault();
      const { pathname, search } = event.currentTarget;
      void navigate({ pathname, search });
    },
    [navigate],
  );

  return (
    <>
      <div
        ref={list}
        className={classes.cells}
        onPointerOver={(event) => point(event.target)}
        onPointerLeave={() => setPointed(null)}
        onFocus={(event) => point(event.target)}
        onBlur={() => setPointed(null)}
      >
        {gpus.map((gpu) => (
          <Cell
            key={gpu.uuid}
            listed={gpu}
            listedAt={listedAt}
            metric={metric}
            colors={colors}
            search={search}
            onOpen={open}
          />
        ))}
      </div>
      {pointed && (
        // The tile's link is the cell's: were it reached by the keyboard, it would take the focus with it when it goes.
        <div
          className={classes.pointed}
          style={{ left: pointed.left, top: pointed.top }}
          aria-hidden
          inert
        >
          <GpuTile
            listed={pointed.gpu}
            listedAt={listedAt}
            reservation={holding?.get(pointed.gpu.reservation_id ?? "")}
            isAlone
            isMixed={gpus.some((gpu) => !gpu.simulated)}
          />
        </div>
      )}
    </>
  );
}

interface CellProps {
  listed: GpuView;
  listedAt: number;
  metric: HeatMetric;
  colors: ReadonlyMap<string, number> | null;
  search: string;
  onOpen: (event: MouseEvent<HTMLAnchorElement>) => void;
}

const Cell = memo(function Cell(props: CellProps) {
  const { listed, listedAt, metric, colors, search, onOpen } = props;
  const state = gpuState(listed);
  const holder = listed.holder ? `, ${heldBy(listed.holder, listed.holders[0]?.requester)}` : "";
  return (
    <a
      tabIndex={-1}
      href={paths.gpu(listed.node_id, listed.uuid) + search}
      onClick={onOpen}
      className={classes.cell}
      data-kind={state.kind}
      aria-label={t`${listed.node_id} GPU ${listed.index}: ${state.word}${holder}`}
    >
      <Heat listed={listed} listedAt={listedAt} metric={metric} colors={colors} />
    </a>
  );
});

/** What changes each second, apart from the link around it. */
function Heat({
  listed,
  listedAt,
  metric,
  colors,
}: Pick<CellProps, "listed" | "listedAt" | "metric" | "colors">) {
  const { gpu } = withReading(listed, listedAt, useLiveReading(gpuKey(listed)));
  if (metric === "holder" || metric === "team") {
    const series = colors?.get(colorKeyOf(listed, metric) ?? "");
    return (
      <span
        className={classes.heat}
        data-step={series ? "color" : 0}
        data-stale={!gpu.fresh || undefined}
        style={series ? { background: `var(--gs-series-${series})` } : undefined}
      />
    );
  }
  const step = metric === "state" ? "state" : (heatStep(gpu, metric) ?? "unknown");
  return <span className={classes.heat} data-step={step} data-stale={!gpu.fresh || undefined} />;
}

interface HeatLegendProps {
  metric: HeatMetric;
  colors: ReadonlyMap<string, number> | null;
}

/** Names of the most that have a colour of their own; the list beside the map has all. */
export function HeatLegend({ metric, colors }: HeatLegendProps) {
  const ends = HEAT_ENDS[metric];
  return (
    <span className={classes.legend}>
      {ends && (
        <span>
          {ends[0]}
          {Array.from({ length: HEAT_STEPS }, (_, step) => (
            <span key={step} className={classes.swatch}>
              <span className={classes.heat} data-step={step} />
            </span>
          ))}
          {ends[1]}
        </span>
      )}
      {[...(colors ?? [])]
        .filter(([, series], index) => series < 8 || index === 7)
        .map(([name, series]) => (
          <span key={name}>
            <span className={classes.swatch}>
              <span className={classes.heat} style={{ background: `var(--gs-series-${series})` }} />
            </span>
            {series < 8 ? name : t`others`}
          </span>
        ))}
      {(
        [
          ["ok", t`free`],
          ["busy", t`held`],
          ["attention", t`attention`],
          ["bad", t`bad`],
        ] as const
      ).map(([kind, word]) => (
        <span key={kind}>
          <span className={classes.swatch} data-kind={kind}>
            <span className={classes.heat} data-step={metric === "state" ? "state" : 0} />
          </span>
          {word}
        </span>
      ))}
      <span>
        <span className={classes.swatch}>
          <span className={classes.heat} data-step="unknown" />
        </span>
        <Trans>no reading</Trans>
      </span>
    </span>
  );
}
