import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { groupBy } from "@/lib/group-by";
import { agoText, fullMoment, moment } from "@/lib/time";
import { dayKey, type AgendaEntry } from "../agenda";
import classes from "./agenda.module.css";

interface AgendaProps {
  entries: AgendaEntry[];
  now: number;
}

/** When GPUs are expected to become free and requests to start, day by day. */
export function Agenda({ entries, now }: AgendaProps) {
  return (
    <section>
      <h2>
        <Trans>Calendar</Trans>
      </h2>
      {entries.length === 0 ? (
        <p className="dim">
          <Trans>
            Nothing says when it ends: a reservation with an expected duration appears here.
          </Trans>
        </p>
      ) : (
        [...groupBy(entries, ({ at }) => dayKey(at))].map(([day, ofDay]) => (
          <div key={day} className={classes.day}>
            <h3>{dayWords(ofDay[0]?.at ?? "", now)}</h3>
            <ol>
              {ofDay.map((entry) => (
                <li key={entry.key} data-kind={entry.kind}>
                  <time dateTime={entry.at} title={fullMoment(entry.at)}>
                    {moment(entry.at, now).split(" ").at(-1)}
                  </time>
                  <span>
                    <strong>{entry.name}</strong>{" "}
                    {entry.kind === "starts"
                      ? t`is expected to start with ${gpuWords(entry.gpus)}`
                      : t`is expected to end: ${gpuWords(entry.gpus)} free`}
                  </span>
                  <span className="dim">
                    {[entry.requester, entry.namespace, agoText(entry.at, now)]
                      .filter(Boolean)
                      .join(", ")}
                  </span>
                </li>
              ))}
            </ol>
          </div>
        ))
      )}
    </section>
  );
}

const gpuWords = (count: number) => (count === 1 ? t`1 GPU` : t`${count} GPUs`);

function dayWords(at: string, now: number): string {
  const words = moment(at, now);
  return words.slice(0, words.lastIndexOf(" "));
}
