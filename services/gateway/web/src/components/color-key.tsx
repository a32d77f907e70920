import classes from "./color-key.module.css";

/** Whose colour is which; of the categorical scale, from 1. */
export function ColorKey({
  label,
  parts,
}: {
  label: string;
  parts: { name: string; series: number }[];
}) {
  return (
    <ul className={classes.key} aria-label={label}>
      {parts.map(({ name, series }) => (
        <li key={name}>
          <i style={{ background: `var(--gs-series-${series})` }} /> {name}
        </li>
      ))}
    </ul>
  );
}
