import { useQuery } from "@tanstack/react-query";
import type { GpuView, ReservationList } from "@schemas/messages";
import { api } from "@/lib/api-client";
import { gpuKey, useLiveReadings } from "@/lib/live-readings";
import { watts, whole } from "@/lib/units";
import { fleetSums, withReading } from "../gpu-state";
import classes from "./summary-strip.module.css";

/** In three seconds: what is free, what is wrong, who waits. */
export function SummaryStrip({ gpus, listedAt }: { gpus: GpuView[]; listedAt: number }) {
  const readings = useLiveReadings();
  const queue = useQuery({
    queryKey: ["reservations", "queued"],
    queryFn: ({ signal }) =>
      api<ReservationList>("/reservations", { query: { state: "queued", limit: 1000 }, signal }),
  });
  const now = gpus.map((gpu) => withReading(gpu, listedAt, readings.get(gpuKey(gpu))).gpu);
  const sums = fleetSums(now);
  const waiting = queue.data?.reservations.length;
  const parts: [string, string, string?][] = [
    ["free", `${sums.free} of ${sums.total}`],
    ["held", whole(sums.held)],
    ["out of service", whole(sums.outOfService), sums.outOfService > 0 ? "bad" : undefined],
    ["waiting requests", whole(waiting) + (queue.data?.next_cursor ? "+" : "")],
    ["power now", watts(sums.powerW)],
  ];
  return (
    <dl className={classes.strip}>
      {parts.map(([name, value, kind]) => (
        <div key={name} className={classes.part}>
          <dt>{name}</dt>
          <dd data-kind={kind}>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
