import { t } from "@lingui/core/macro";
import { valueText } from "@/domain/parameters";
import classes from "./chips.module.css";

/** Parameters; those of `marked` differ from the other experiments. */
export function Chips({
  parameters,
  marked = [],
}: {
  parameters: Record<string, unknown>;
  marked?: string[];
}) {
  return (
    <ul className={classes.chips} aria-label={t`parameters`}>
      {Object.entries(parameters).map(([name, value]) => (
        <li
          key={name}
          data-marked={marked.includes(name) || undefined}
          title={
            marked.includes(name)
              ? t`differs between the experiments of this task`
              : t`the same in all experiments`
          }
        >
          {name} <strong>{valueText(value)}</strong>
        </li>
      ))}
    </ul>
  );
}
