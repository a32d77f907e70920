import { t } from "@lingui/core/macro";
import type { GpuView, ReservationView } from "@schemas/messages";
import { fittingName, type SeriesShown } from "@/components/chart/series-chart";
import { holderOf } from "@/domain/holder";
import type { Span } from "@/lib/time-range";

type Bands = NonNullable<SeriesShown["bands"]>;
type Marks = NonNullable<SeriesShown["marks"]>;

/**
 * Who held the GPU in the time that is shown, a colour for each reservation in turn; as much of a name
 * as its band has room for in a chart of this width.
 */
export function holderBands(
  uuid: string,
  reservations: ReservationView[],
  { startMs, endMs }: Span,
  colors: string[],
  widthPx: number,
): Bands {
  const pxPerMs = widthPx / Math.max(1, endMs - startMs);
  return reservations
    .filter(({ devices }) => devices.some((device) => device.uuid === uuid))
    .flatMap(({ holder, granted_at: from, ended_at: to }) => {
      if (!from) return [];
      const begin = Math.max(startMs, Date.parse(from));
      const end = Math.min(endMs, to ? Date.parse(to) : endMs);
      if (begin >= end) return [];
      const name = fittingName(holderOf(holder).name, (end - begin) * pxPerMs);
      return [{ name, startMs: begin, endMs: end }];
    })
    .sort((a, b) => a.startMs - b.startMs)
    .map((band, index) => ({ ...band, color: colors[index % colors.length] ?? "" }));
}

/** Faults that the driver told of, at their moment. */
export function faultMarks(gpu: GpuView, { startMs, endMs }: Span, color: string): Marks {
  return gpu.recent_faults
    .map(({ xid, change, occurred_at: at }) => ({
      name: xid === null ? change.replaceAll("_", " ") : t`XID ${xid}`,
      atMs: Date.parse(at),
      color,
    }))
    .filter(({ atMs }) => atMs >= startMs && atMs <= endMs);
}
