import type { GpuView, ReservationView } from "@schemas/messages";
import type { SeriesShown } from "@/components/chart/series-chart";
import { holderOf } from "@/domain/holder";
import type { Span } from "@/lib/time-range";

type Bands = NonNullable<SeriesShown["bands"]>;
type Marks = NonNullable<SeriesShown["marks"]>;

/** Who held the GPU in the time that is shown, a colour for each reservation in turn. */
export function holderBands(
  uuid: string,
  reservations: ReservationView[],
  { startMs, endMs }: Span,
  colors: string[],
): Bands {
  return reservations
    .filter(({ devices }) => devices.some((device) => device.uuid === uuid))
    .flatMap(({ holder, granted_at: from, ended_at: to }) => {
      if (!from) return [];
      const begin = Math.max(startMs, Date.parse(from));
      const end = Math.min(endMs, to ? Date.parse(to) : endMs);
      return begin < end ? [{ name: holderOf(holder).name, startMs: begin, endMs: end }] : [];
    })
    .sort((a, b) => a.startMs - b.startMs)
    .map((band, index) => ({ ...band, color: colors[index % colors.length] ?? "" }));
}

/** Faults that the driver told of, at their moment. */
export function faultMarks(gpu: GpuView, { startMs, endMs }: Span, color: string): Marks {
  return gpu.recent_faults
    .map(({ xid, change, occurred_at: at }) => ({
      name: xid === null ? change.replaceAll("_", " ") : `XID ${xid}`,
      atMs: Date.parse(at),
      color,
    }))
    .filter(({ atMs }) => atMs >= startMs && atMs <= endMs);
}
