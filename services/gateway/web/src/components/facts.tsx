import type { ReactNode } from "react";
import { Term } from "./term";
import classes from "./facts.module.css";

/** Names over values, side by side. */
export function Facts({ facts }: { facts: [name: string, value: ReactNode, title?: string][] }) {
  return (
    <dl className={classes.facts}>
      {facts.map(([name, value, title]) => (
        <div key={name} title={title}>
          <dt>
            <Term>{name}</Term>
          </dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
