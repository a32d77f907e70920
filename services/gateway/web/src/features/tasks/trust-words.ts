import { t } from "@lingui/core/macro";
import type { EngineStanding, TrustedConfiguration, TrustVerdict } from "@schemas/messages";
import { groupBy } from "@/lib/group-by";
import { number } from "@/lib/units";

/** Whether to believe that the winner is best: by what it is ahead, and how sure that is. */
export function trustWords(trust: TrustVerdict): string {
  const { winner, noise_floor_percent: noise, ties, repeated, set_aside: setAside } = trust;
  const { engines } = trust;
  const undecided = trust.order.filter((configuration) => configuration.undecided_because !== "");
  const winnerRuns = repeated.find((configuration) => configuration.ordinal === winner);
  const next = repeated
    .filter((configuration) => configuration.ordinal !== winner)
    .toSorted((a, b) => a.behind_percent - b.behind_percent)[0];
  const spread = winnerRuns?.spread_percent ?? null;
  const words = [
    undecided.length > 0 && t`not decided: ${undecidedWords(undecided)}`,
    ties.length > 0
      ? t`cannot be told from ${experiments(ties)} and changes the fewest flags`
      : next &&
        undecided.length === 0 &&
        t`ahead of experiment ${next.ordinal} by ${number(next.behind_percent)} %, more than chance`,
    ...engines.slice(1).map(engineWords),
    winnerRuns &&
      t`measured ${winnerRuns.runs} times${spread === null ? "" : ` ± ${number(spread)} %`}`,
    noise === null ? t`nothing was measured twice` : t`noise floor ${number(noise)} %`,
    trust.worst_score !== null &&
      t`at worst ${number(trust.worst_score)} in ${trust.replays} runs with other requests`,
    trust.improvement_percent !== null && improvementWords(trust.improvement_percent),
    setAside.length > 0 &&
      t`${experiments(setAside.map((experiment) => experiment.ordinal))} set aside`,
    trust.incomplete_because && t`checked in part: ${trust.incomplete_because}`,
  ];
  return words.filter(Boolean).join("; ");
}

/** How one engine of several stands against the winner's. */
function engineWords(standing: EngineStanding): string {
  const names = [standing.base_runtime, standing.runtime_image_tag, standing.model];
  const name = names.filter(Boolean).join(" ");
  const { behind_percent: behind, noise_percent: noise } = standing;
  if (noise === null)
    return t`${name} is behind by ${number(behind)} %, and how much of it is chance is not known`;
  return standing.is_decided
    ? t`beats ${name} by ${number(behind)} % (noise ${number(noise)} %)`
    : t`cannot be told from ${name} (noise ${number(noise)} %)`;
}

/** "experiment 2 may be better (the load generator's own time)", by reason. */
function undecidedWords(undecided: TrustedConfiguration[]): string {
  return [...groupBy(undecided, (configuration) => configuration.undecided_because)]
    .map(
      ([because, group]) =>
        t`${experiments(group.map((configuration) => configuration.ordinal))} may be better (${because})`,
    )
    .join(", ");
}

function improvementWords(percent: number): string {
  return percent > 0
    ? t`another may be better by ${number(percent)} % at most`
    : t`no other is likely to be better`;
}

const experiments = (ordinals: number[]) =>
  `experiment${ordinals.length > 1 ? "s" : ""} ${[ordinals.slice(0, -1).join(", "), ordinals.at(-1)].filter(Boolean).join(" and ")}`;
