import { useQuery } from "@tanstack/react-query";
import type { GpuView, ReservationList, UsageView } from "@schemas/messages";
import { api } from "@/lib/api-client";
import { gpuKey, newestReading } from "@/lib/live-readings";
import { useNow } from "@/lib/time";
import { number, watts, whole, withUnit } from "@/lib/units";
import { useUrlState } from "@/lib/url-state";
import { SHOWN } from "../fleet-filter";
import { fleetSums, withReading } from "../gpu-state";
import classes from "./summary-strip.module.css";

const CENTIHOUR_US = 36e6;
const IDLE_REFRESH_MS = 60_000;

/** In three seconds: what is free, what is wrong, who waits. */
export function SummaryStrip({ gpus, listedAt }: { gpus: GpuView[]; listedAt: number }) {
  // Sums of a whole fleet once a second, not with each node's reading.
  useNow();
  const [shown, setShown] = useUrlState("show", "");
  const queue = useQuery({
    queryKey: ["reservations", "queued"],
    queryFn: ({ signal }) =>
      api<ReservationList>("/reservations", { query: { state: "queued", limit: 1000 }, signal }),
  });
  const today = new Date().toDateString();
  const idle = useQuery({
    queryKey: ["reports", "gpu-time", "today", today],
    queryFn: ({ signal }) =>
      api<UsageView>("/reports/gpu-time", { query: { start_at: new Date(today).toISOString() }, signal }),
    refetchInterval: IDLE_REFRESH_MS,
  });
  const now = gpus.map((gpu) => withReading(gpu, listedAt, newestReading(gpuKey(gpu))).gpu);
  const sums = fleetSums(now);
  const waiting = queue.data?.reservations.length;
  const parts: [string, string, string?][] = [
    ["free", `${sums.free} of ${sums.total}`],
    ["held", whole(sums.held)],
    ["out of service", whole(sums.outOfService), sums.outOfService > 0 ? "bad" : undefined],
    ["waiting requests", whole(waiting) + (queue.data?.next_cursor ? "+" : "")],
    ["power now", watts(sums.powerW)],
    ["held and idle today", withUnit(number(idle.data && Math.round(idle.data.total.idle_us / CENTIHOUR_US) / 100), "GPU-h")],
  ];
  return (
    <dl className={classes.strip}>
      {parts.map(([name, value, kind]) => (
        <div key={name} className={classes.part}>
          <dt>{name}</dt>
          <dd data-kind={kind}>
            {SHOWN.some((each) => each === name) ? (
              <button
                type="button"
                className={classes.filter}
                aria-pressed={shown === name}
                title={`show ${shown === name ? "all" : "these"}`}
                onClick={() => setShown(shown === name ? "" : name)}
              >
                {value}
              </button>
            ) : (
              value
            )}
          </dd>
        </div>
      ))}
    </dl>
  );
}
