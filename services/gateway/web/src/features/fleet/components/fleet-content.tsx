import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button, SegmentedControl, Select, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Suspense, useMemo } from "react";
import { latePart } from "@/lib/parts";
import type { GpuView, NodeView } from "@schemas/messages";
import { FilterSelect } from "@/components/filter-select";
import { Empty } from "@/components/page";
import { RovingFocus } from "@/components/roving-focus";
import { WhenNear } from "@/components/when-near";
import { useUrlState } from "@/lib/url-state";
import { holdingOptions } from "@/lib/api/get-holding";
import {
  byNode,
  filterGpus,
  HEAT_METRICS,
  SHOWN,
  SHOWN_WORDS,
  viewOf,
  VIEWS,
  type FleetView,
  type HeatMetric,
} from "../fleet-filter";
import { COLOR_BY, colorsBy } from "../allocation";
import { Cells, HeatLegend } from "./fleet-map";
import { WhoHolds } from "./who-holds";
import { NodeHeader, NodeTiles, type NodeProps } from "./node-row";
import classes from "./fleet-content.module.css";
import rowClasses from "./node-row.module.css";

const Allocation = latePart(async () => ({ default: (await import("./allocation")).Allocation }));

const VIEW_WORDS: Record<FleetView, string> = {
  tiles: t`Tiles`,
  map: t`Heat map`,
  allocation: t`Allocation`,
};

const HEAT_WORDS: Record<HeatMetric, string> = {
  utilization: t`utilization`,
  memory: t`memory`,
  temperature: t`temperature`,
  power: t`power`,
  state: t`state`,
  holder: t`holder`,
  team: t`team`,
};

/** About what a node measures in each view, before it is drawn. */
const HEIGHT_PX: Record<FleetView, (gpus: number) => number> = {
  tiles: (gpus) => 48 + 142 * Math.ceil(gpus / 5),
  map: (gpus) => 20 + 34 * Math.ceil(gpus / 8),
  allocation: () => 34,
};

/** About as many nodes as a small screen shows; more at once would be seen later. */
const FIRST_NODES: Record<FleetView, number> = { tiles: 4, map: 24, allocation: 24 };

const WIDE_NODE_GPUS = 16;
const DENSE_GPUS = 256;

interface FleetContentProps {
  gpus: GpuView[];
  nodes: NodeView[];
  listedAt: number;
}

export function FleetContent({ gpus, nodes, listedAt }: FleetContentProps) {
  const [chosen, setView] = useUrlState("view", "");
  const [metric, setMetric] = useUrlState("metric", "utilization");
  const [shown, setShown] = useUrlState("show", "");
  const [words, setWords] = useUrlState("words", "");
  const [only, setOnly] = useUrlState("node", "");
  const holding = useQuery(holdingOptions).data;
  const groups = useMemo(
    () =>
      byNode(
        filterGpus(only ? gpus.filter((gpu) => gpu.node_id === only) : gpus, shown, words),
        nodes,
      ),
    [gpus, nodes, only, shown, words],
  );
  const heat = HEAT_METRICS.find((candidate) => candidate === metric) ?? "utilization";
  const view = only && chosen !== "allocation" ? "tiles" : viewOf(chosen, gpus.length);
  const isMixed = gpus.some(({ simulated }) => !simulated);
  const colorBy = COLOR_BY.find((by) => by === heat) ?? null;
  const colors = useMemo(() => (colorBy ? colorsBy(gpus, colorBy) : null), [colorBy, gpus]);
  const shownGpus = useMemo(() => groups.flatMap((group) => group.gpus), [groups]);
  const rows = groups.map((group, index) => (
    <WhenNear
      // What one view measured says nothing of another.
      key={`${view} ${group.nodeId}`}
      heightPx={HEIGHT_PX[view](group.gpus.length)}
      startsNear={index < FIRST_NODES[view]}
      className={view === "map" && group.gpus.length > WIDE_NODE_GPUS ? classes.wide : undefined}
    >
      {() => (
        <Node
          {...group}
          view={view}
          metric={heat}
          colors={colors}
          isMixed={isMixed}
          listedAt={listedAt}
          holding={holding}
        />
      )}
    </WhenNear>
  ));
  return (
    <>
      <div className={classes.tools}>
        <SegmentedControl
          size="xs"
          aria-label={t`View`}
          data={VIEWS.map((value) => ({ value, label: VIEW_WORDS[value] }))}
          value={view}
          onChange={setView}
        />
        <FilterSelect
          w={130}
          aria-label={t`State`}
          all={t`All states`}
          data={SHOWN.map((value) => ({ value, label: SHOWN_WORDS[value] }))}
          value={shown}
          onChange={setShown}
        />
        <TextInput
          size="xs"
          aria-label={t`Filter by node, model, holder or namespace`}
          placeholder={t`Node, model, holder`}
          value={words}
          onChange={(event) => setWords(event.currentTarget.value)}
        />
        {only && (
          <Button size="xs" variant="default" onClick={() => setOnly("")}>
            <Trans>Show all nodes, not only {only}</Trans>
          </Button>
        )}
        {view === "map" && (
          <>
            <Select
              size="xs"
              w={120}
              aria-label={t`Colour by`}
              data={HEAT_METRICS.map((value) => ({ value, label: HEAT_WORDS[value] }))}
              allowDeselect={false}
              value={heat}
              onChange={(value) => value && setMetric(value)}
            />
            <HeatLegend metric={heat} colors={colors} />
          </>
        )}
      </div>
      {groups.length === 0 && (
        <Empty title={t`No matching GPUs`}>
          <Trans>Remove a filter to see the fleet.</Trans>
        </Empty>
      )}
      {view === "map" ? (
        <div className={classes.sides}>
          <RovingFocus
            label={t`GPUs by node; use the arrow keys to move between them`}
            className={gpus.length > DENSE_GPUS ? `${classes.map} ${classes.dense}` : classes.map}
          >
            {rows}
          </RovingFocus>
          <WhoHolds gpus={shownGpus} holding={holding} colorBy={colorBy} />
        </div>
      ) : view === "allocation" ? (
        <Suspense>
          <Allocation groups={groups} holding={holding} />
        </Suspense>
      ) : (
        rows
      )}
    </>
  );
}

interface ShownNodeProps extends NodeProps {
  view: FleetView;
  metric: HeatMetric;
  colors: ReadonlyMap<string, number> | null;
  isMixed: boolean;
}

function Node({ view, metric, colors, isMixed, ...node }: ShownNodeProps) {
  if (view === "map") {
    return (
      <section aria-label={t`node ${node.nodeId}`}>
        <NodeHeader {...node} isShort />
        <Cells {...node} metric={metric} colors={colors} />
      </section>
    );
  }
  return (
    <section className={rowClasses.row} aria-label={t`node ${node.nodeId}`}>
      <NodeHeader {...node} isMixed={isMixed} />
      <NodeTiles {...node} />
    </section>
  );
}
