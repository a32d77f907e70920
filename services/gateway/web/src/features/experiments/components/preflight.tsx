import type { Finding } from "@schemas/messages";
import classes from "./troubles.module.css";

/** What rules said of its model, image and GPUs before it took any; by which rule is the title. */
export function PreflightBlock({ findings }: { findings: Finding[] }) {
  return (
    <section className={classes.preflight} aria-label="preflight">
      <strong>Preflight</strong>
      <ul>
        {findings.map((each) => (
          <li key={`${each.subject} ${each.rule}`} title={`${each.rule}: ${each.source}`}>
            {each.subject}, {each.verdict.replaceAll("_", " ")}: {each.message}
            {each.action && `; ${each.action}`}
          </li>
        ))}
      </ul>
    </section>
  );
}
