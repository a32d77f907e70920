import classes from "./meter.module.css";

export interface MeterPart {
  share: number;
  title?: string;
  /** Of the categorical scale, from 1; without one the accent. */
  series?: number;
}

/** A bar to scale; nothing is drawn of what is unknown, nor a gap beside what is 0. */
export function Meter({ label, parts }: { label: string; parts: MeterPart[] | null }) {
  return (
    <div
      className={classes.track}
      role="img"
      aria-label={label}
      data-unknown={parts ? undefined : true}
    >
      {parts
        ?.filter((part) => part.share > 0)
        .map((part, index) => (
          <div
            key={index}
            className={classes.part}
            title={part.title}
            style={{
              width: `${part.share * 100}%`,
              background: part.series ? `var(--gs-series-${part.series})` : undefined,
            }}
          />
        ))}
    </div>
  );
}
