import { t } from "@lingui/core/macro";
import { StateMark } from "./state-mark";

/** Why a better score has a lower rank: what `brokenBy` says. */
export function Broken({ constraints }: { constraints: string[] }) {
  const [first, ...others] = constraints;
  if (first === undefined) return null;
  const word = t`misses ${first}${others.length > 0 ? t` and ${others.length} more` : ""}`;
  return <StateMark kind="attention" word={word} title={constraints.join(", ")} />;
}
