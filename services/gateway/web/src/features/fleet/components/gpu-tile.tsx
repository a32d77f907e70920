import { memo } from "react";
import { Link } from "react-router";
import type { GpuView } from "@schemas/messages";
import { Meter } from "@/components/meter";
import { StateMark } from "@/components/state-mark";
import { gpuKey, useLiveReading } from "@/lib/live-readings";
import { paths } from "@/lib/paths";
import { duration, useNow } from "@/lib/time";
import { celsius, gibibytes, percent, share, watts } from "@/lib/units";
import { useSharedSearch } from "@/lib/url-state";
import { gpuState, withReading } from "../gpu-state";
import classes from "./gpu-tile.module.css";

export const GpuTile = memo(function GpuTile(props: { listed: GpuView; listedAt: number }) {
  const search = useSharedSearch();
  const live = useLiveReading(gpuKey(props.listed));
  const { gpu, takenAt } = withReading(props.listed, props.listedAt, live);
  const state = gpuState(gpu);
  const used = share(gpu.memory_used_mb, gpu.memory_total_mb);
  return (
    <Link
      to={{ pathname: paths.gpu(gpu.node_id, gpu.uuid), search }}
      className={classes.tile}
      data-stale={gpu.stale || undefined}
      data-kind={state.kind}
    >
      <span className={classes.head}>
        <strong>{gpu.index}</strong>
        <span className={classes.model} title={gpu.name}>
          {gpu.mig_profile ? `${gpu.name} ${gpu.mig_profile}` : gpu.name}
        </span>
        <StateMark {...state} />
      </span>
      <Reading name="GPU" value={percent(gpu.utilization_percent)} part={share(gpu.utilization_percent, 100)} />
      <Reading
        name="memory"
        value={`${gibibytes(gpu.memory_used_mb).replace("\u202fGiB", "")} / ${gibibytes(gpu.memory_total_mb)}`}
        part={used}
      />
      <span className={classes.foot}>
        <span>{celsius(gpu.temperature_c)}</span>
        <span>{watts(gpu.power_draw_w)}</span>
        {gpu.stale ? <Age takenAt={takenAt} /> : <span className={classes.holder}>{gpu.holder}</span>}
      </span>
    </Link>
  );
});

function Reading({ name, value, part }: { name: string; value: string; part: number | null }) {
  return (
    <span className={classes.reading}>
      <span className={classes.values}>
        <span className="dim">{name}</span>
        <span>{value}</span>
      </span>
      <Meter label={`${name} ${value}`} parts={part === null ? null : [{ share: part }]} />
    </span>
  );
}

function Age({ takenAt }: { takenAt: number | null }) {
  const now = useNow();
  return (
    <span className={classes.age}>
      {takenAt === null ? "no reading" : `${duration(Math.round((now - takenAt) / 1000))} old`}
    </span>
  );
}
