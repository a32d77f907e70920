import { StateMark } from "./state-mark";

/** Why a better score has a lower rank: what `brokenBy` says. */
export function Broken({ constraints }: { constraints: string[] }) {
  const [first, ...others] = constraints;
  if (first === undefined) return null;
  const word = `misses ${first}${others.length > 0 ? ` and ${others.length} more` : ""}`;
  return <StateMark kind="attention" word={word} title={constraints.join(", ")} />;
}
