import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { memo } from "react";
import { Link } from "react-router";
import type { GpuView, ReservationView } from "@schemas/messages";
import { Meter } from "@/components/meter";
import { SimulatedBadge } from "@/components/simulated-badge";
import { StateMark } from "@/components/state-mark";
import { heldBy } from "@/domain/holder";
import { gpuKey, useLiveReading } from "@/lib/live/readings";
import { paths } from "@/lib/paths";
import { duration, useNow } from "@/lib/time";
import { celsius, gibibytes, percent, share, watts } from "@/lib/units";
import { useSharedSearch } from "@/lib/url-state";
import { gpuState, withReading } from "../gpu-state";
import { heldUntil } from "@/domain/held-until";
import classes from "./gpu-tile.module.css";

interface GpuTileProps {
  listed: GpuView;
  listedAt: number;
  /** The reservation of its first holder, where one may read it. */
  reservation: ReservationView | undefined;
  /** Where the tile stands alone, without its node. */
  isAlone?: boolean;
  /** Others are real, so that it has to be said of each. */
  isMixed?: boolean;
}

export const GpuTile = memo(function GpuTile({
  listed,
  listedAt,
  reservation,
  isAlone,
  isMixed,
}: GpuTileProps) {
  const search = useSharedSearch();
  const live = useLiveReading(gpuKey(listed));
  const { gpu, takenAt } = withReading(listed, listedAt, live);
  const state = gpuState(gpu);
  const used = share(gpu.memory_used_mb, gpu.memory_total_mb);
  return (
    <Link
      to={{ pathname: paths.gpu(gpu.node_id, gpu.uuid), search }}
      className={classes.tile}
      data-stale={!gpu.fresh || undefined}
      data-kind={state.kind}
    >
      {isAlone && (
        <span className={classes.head}>
          <strong className={classes.model}>{gpu.node_id}</strong>
          {gpu.simulated && isMixed && <SimulatedBadge />}
        </span>
      )}
      <span className={classes.head}>
        <strong>{gpu.index}</strong>
        <span className={classes.model} title={gpu.name}>
          {gpu.mig_profile ? `${gpu.name} ${gpu.mig_profile}` : gpu.name}
        </span>
        <StateMark {...state} />
      </span>
      <Reading
        name={t`utilization`}
        value={percent(gpu.utilization_percent)}
        part={share(gpu.utilization_percent, 100)}
      />
      <Reading
        name={t`memory`}
        value={`${gibibytes(gpu.memory_used_mb).replace("\u202fGiB", "")} / ${gibibytes(gpu.memory_total_mb)}`}
        part={used}
      />
      <span className={classes.foot}>
        <span>{celsius(gpu.temperature_c)}</span>
        <span>{watts(gpu.power_draw_w)}</span>
        <Age takenAt={takenAt} isStale={!gpu.fresh} />
      </span>
      <Holder gpu={gpu} reservation={reservation} />
    </Link>
  );
});

function Reading({ name, value, part }: { name: string; value: string; part: number | null }) {
  return (
    <span className={classes.reading}>
      <span className={classes.values}>
        <span className="dim">{name}</span>
        <span className={classes.value}>{value}</span>
      </span>
      <Meter label={`${name} ${value}`} parts={part === null ? null : [{ share: part }]} />
    </span>
  );
}

function Holder({ gpu, reservation }: { gpu: GpuView; reservation: ReservationView | undefined }) {
  const now = useNow();
  const shared = gpu.holders.filter((holder) => holder.shares < 1);
  const words =
    shared.length > 0
      ? shared
          .map(
            (holder) =>
              `${heldBy(holder.holder, holder.requester) || t`held`} ${percent(holder.shares * 100)}`,
          )
          .join(", ")
      : heldBy(gpu.holder, gpu.holders[0]?.requester) || null;
  return (
    <span className={classes.foot}>
      <span className={classes.holder} title={words ?? undefined}>
        {words ?? (
          <span className="dim">
            <Trans>not held</Trans>
          </span>
        )}
      </span>
      {reservation && <span className={classes.until}>{heldUntil(reservation, now)}</span>}
    </span>
  );
}

function Age({ takenAt, isStale }: { takenAt: number | null; isStale: boolean }) {
  const now = useNow();
  const seconds = takenAt === null ? null : Math.max(0, Math.round((now - takenAt) / 1000));
  return (
    <span className={classes.age} data-stale={isStale || undefined} title={t`age of the reading`}>
      {seconds === null ? t`no reading` : t`${duration(seconds)} old`}
    </span>
  );
}
