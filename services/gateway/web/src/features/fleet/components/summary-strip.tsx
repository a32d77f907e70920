import { t } from "@lingui/core/macro";
import { useQuery } from "@tanstack/react-query";
import type { GpuView } from "@schemas/messages";
import { gpuKey, newestReading } from "@/lib/live/readings";
import { useNow } from "@/lib/time";
import { number, watts, whole, withUnit } from "@/lib/units";
import { useUrlState } from "@/lib/url-state";
import { gpuTimeOfDayOptions } from "../api/get-gpu-time-of-day";
import { waitingOptions } from "../api/get-waiting";
import type { SHOWN } from "../fleet-filter";
import { fleetSums, withReading } from "../gpu-state";
import classes from "./summary-strip.module.css";

const CENTIHOUR_US = 36e6;

/** In three seconds: what is free, what is wrong, who waits. */
export function SummaryStrip({ gpus, listedAt }: { gpus: GpuView[]; listedAt: number }) {
  // Sums of a whole fleet once a second, not with each node's reading.
  useNow();
  const [shown, setShown] = useUrlState("show", "");
  const queue = useQuery(waitingOptions);
  const today = useQuery(gpuTimeOfDayOptions(new Date().toDateString()));
  const now = gpus.map((gpu) => withReading(gpu, listedAt, newestReading(gpuKey(gpu))).gpu);
  const sums = fleetSums(now);
  const waiting = queue.data?.reservations.length;
  const parts: [name: string, value: string, kind?: string, filter?: (typeof SHOWN)[number]][] = [
    [t`free`, t`${sums.free} of ${sums.total}`, undefined, "free"],
    [t`held`, whole(sums.held), undefined, "held"],
    [
      t`out of service`,
      whole(sums.outOfService),
      sums.outOfService > 0 ? "bad" : undefined,
      "out of service",
    ],
    [t`waiting requests`, whole(waiting) + (queue.data?.next_cursor ? "+" : "")],
    [t`power now`, watts(sums.powerW)],
    [
      t`held and idle today`,
      withUnit(
        number(today.data && Math.round(today.data.total.idle_us / CENTIHOUR_US) / 100),
        "GPU-h",
      ),
    ],
  ];
  return (
    <dl className={classes.strip}>
      {parts.map(([name, value, kind, filter]) => (
        <div key={name} className={classes.part}>
          <dt>{name}</dt>
          <dd data-kind={kind}>
            {filter ? (
              <button
                type="button"
                className={classes.filter}
                aria-pressed={shown === filter}
                title={shown === filter ? t`show all` : t`show only these`}
                onClick={() => setShown(shown === filter ? "" : filter)}
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
