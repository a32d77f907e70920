import { t } from "@lingui/core/macro";
import type { Finding, Verdict } from "@schemas/messages";
import { groupBy } from "@/lib/group-by";
import { StateMark } from "./state-mark";

const KINDS: Record<Verdict, "ok" | "attention" | "bad"> = {
  blocked: "bad",
  case_by_case: "attention",
  unstable: "attention",
  supported: "ok",
};
const WORST_FIRST: Verdict[] = ["blocked", "case_by_case", "unstable", "supported"];

/** What rules say of a run before it takes a GPU: each once, worst first, with what to do. */
export function distinct(findings: Finding[]): { finding: Finding; count: number }[] {
  const alike = groupBy(findings, (finding) =>
    JSON.stringify([finding.verdict, finding.subject, finding.message]),
  );
  return [...alike.values()]
    .flatMap((repeats) => (repeats[0] ? [{ finding: repeats[0], count: repeats.length }] : []))
    .toSorted(
      (a, b) => WORST_FIRST.indexOf(a.finding.verdict) - WORST_FIRST.indexOf(b.finding.verdict),
    );
}

export function Findings({ findings, ofHowMany }: { findings: Finding[]; ofHowMany?: number }) {
  return (
    <ul aria-label={t`preflight`}>
      {distinct(findings).map(({ finding, count }) => (
        <li key={finding.subject + finding.message}>
          <StateMark
            kind={KINDS[finding.verdict]}
            word={finding.verdict.replaceAll("_", " ")}
            title={finding.source}
          />{" "}
          {finding.subject && <strong>{finding.subject}: </strong>}
          {finding.message}
          {finding.action && `; ${finding.action}`}
          {ofHowMany !== undefined && count < ofHowMany && (
            <span className="dim"> {t`(${count} of ${ofHowMany} experiments)`}</span>
          )}
        </li>
      ))}
    </ul>
  );
}
