import { Button, SegmentedControl, Select, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { useSearchParams } from "react-router";
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
  viewOf,
  VIEWS,
  type FleetView,
  type HeatMetric,
} from "../fleet-filter";
import { Allocation } from "./allocation";
import { Cells, HeatLegend } from "./fleet-map";
import { NodeHeader, NodeTiles, type NodeProps } from "./node-row";
import classes from "./fleet-content.module.css";
import rowClasses from "./node-row.module.css";

const VIEW_WORDS: Record<FleetView, string> = {
  tiles: "Tiles",
  map: "Heat map",
  allocation: "Allocation",
};

/** About what a node measures in each view, before it is drawn. */
const HEIGHT_PX: Record<FleetView, (gpus: number) => number> = {
  tiles: (gpus) => 48 + 142 * Math.ceil(gpus / 5),
  map: (gpus) => 20 + 34 * Math.ceil(gpus / 8),
  allocation: (gpus) => 48 + 28 * Math.ceil(gpus / 2),
};

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
  const rows = groups.map((group) => (
    <WhenNear
      // What one view measured says nothing of another.
      key={`${view} ${group.nodeId}`}
      heightPx={HEIGHT_PX[view](group.gpus.length)}
      className={view === "map" && group.gpus.length > WIDE_NODE_GPUS ? classes.wide : undefined}
    >
      {() => <Node {...group} view={view} metric={heat} listedAt={listedAt} holding={holding} />}
    </WhenNear>
  ));
  return (
    <>
      <div className={classes.tools}>
        <SegmentedControl
          size="xs"
          aria-label="View"
          data={VIEWS.map((value) => ({ value, label: VIEW_WORDS[value] }))}
          value={view}
          onChange={setView}
        />
        <FilterSelect
          w={130}
          aria-label="State"
          all="All states"
          data={[...SHOWN]}
          value={shown}
          onChange={setShown}
        />
        <TextInput
          size="xs"
          aria-label="Filter by node, model, holder or namespace"
          placeholder="Node, model, holder"
          value={words}
          onChange={(event) => setWords(event.currentTarget.value)}
        />
        {only && (
          <Button size="xs" variant="default" onClick={() => setOnly("")}>
            Show all nodes, not only {only}
          </Button>
        )}
        {view === "map" && (
          <>
            <Select
              size="xs"
              w={120}
              aria-label="Colour by"
              data={[...HEAT_METRICS]}
              allowDeselect={false}
              value={heat}
              onChange={(value) => value && setMetric(value)}
            />
            <HeatLegend metric={heat} />
          </>
        )}
      </div>
      {groups.length === 0 && (
        <Empty title="No matching GPUs">Remove a filter to see the fleet.</Empty>
      )}
      {view === "map" ? (
        <RovingFocus
          label="GPUs by node; use the arrow keys to move between them"
          className={gpus.length > DENSE_GPUS ? `${classes.map} ${classes.dense}` : classes.map}
        >
          {rows}
        </RovingFocus>
      ) : (
        rows
      )}
    </>
  );
}

function Node({ view, metric, ...node }: NodeProps & { view: FleetView; metric: HeatMetric }) {
  const [parameters] = useSearchParams();
  const alone = new URLSearchParams(parameters);
  alone.set("node", node.nodeId);
  if (view === "map") {
    return (
      <section aria-label={`node ${node.nodeId}`}>
        <NodeHeader {...node} search={`?${alone}`} isShort />
        <Cells {...node} metric={metric} />
      </section>
    );
  }
  return (
    <section className={rowClasses.row} aria-label={`node ${node.nodeId}`}>
      <NodeHeader {...node} search={`?${alone}`} />
      {view === "tiles" ? <NodeTiles {...node} /> : <Allocation {...node} />}
    </section>
  );
}
