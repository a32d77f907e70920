import { useQuery, type UseQueryResult } from "@tanstack/react-query";
import type { AvailabilityView, GpuRequest, TaskPlan } from "@schemas/messages";
import { Facts } from "@/components/facts";
import { StateMark } from "@/components/state-mark";
import { duration, secondsSince, useNow } from "@/lib/time";
import { number, UNKNOWN, whole, withUnit } from "@/lib/units";
import { availabilityOptions } from "../api/check-draft";
import { valueAt, type Draft } from "../draft";
import { reasonSentences } from "../reason-sentences";

const MOST_REASONS = 4;

interface PlanSummaryProps {
  plan: UseQueryResult<TaskPlan>;
  draft: Draft | null;
  isSettled: boolean;
}

/** What would be run, at what cost at most, and when it could start. */
export function PlanSummary({ plan, draft, isSettled }: PlanSummaryProps) {
  const found = plan.data;
  const largest = found && largestRequest(found);
  const availability = useQuery(availabilityOptions(found?.missing.length ? undefined : largest)).data;
  const now = useNow();
  const waitSeconds = secondsSince(new Date(now).toISOString(), Date.parse(availability?.expected_start_at ?? ""));
  const gpus = largest ? (largest.gpus ?? 1) * (largest.nodes ?? 1) : null;
  const limit = Number(draft ? valueAt(draft, "optimization.timeout_per_iteration") : NaN);
  return (
    <section aria-label="what it would become" aria-live="polite" style={{ opacity: isSettled ? 1 : 0.6 }}>
      <Facts
        facts={[
          ["experiments", found ? `${whole(found.total)}${found.cut ? ` (${whole(found.cut)} cut)` : ""}` : UNKNOWN],
          ["GPUs per experiment", whole(gpus)],
          [
            "GPU memory, at least",
            largest?.min_memory_mb ? withUnit(number(largest.min_memory_mb / 1024), "GiB") : UNKNOWN,
          ],
          [
            "GPU time, at most",
            found && gpus && limit ? withUnit(number((found.total * gpus * limit) / 3600), "GPU-h") : UNKNOWN,
            "every experiment to its time limit",
          ],
          [
            "starts",
            availability ? (
              availability.available ? (
                <StateMark kind="ok" word="now" title={availability.message} />
              ) : (
                <StateMark
                  kind={availability.impossible ? "bad" : "attention"}
                  word={
                    availability.impossible
                      ? "never on this fleet"
                      : waitSeconds !== null && Number.isFinite(waitSeconds)
                        ? `in about ${duration(waitSeconds)}`
                        : "when GPUs are free"
                  }
                  title={availability.message}
                />
              )
            ) : (
              UNKNOWN
            ),
          ],
        ]}
      />
      {availability && <WhyNotNow of={availability} />}
      {availability?.suggestion && <p>Would start now: {availability.suggestion.message}</p>}
      {plan.error && isSettled && (
        <p role="alert" style={{ color: "var(--gs-bad)" }}>
          {plan.error.message}
        </p>
      )}
      {found?.missing.map((missing) => (
        <p key={missing} role="alert" style={{ color: "var(--gs-bad)" }}>
          {missing}
        </p>
      ))}
      {found?.notes.map((note) => (
        <p key={note} className="dim">
          {note}
        </p>
      ))}
    </section>
  );
}

function WhyNotNow({ of }: { of: AvailabilityView }) {
  if (of.available || of.impossible) return <p className="dim">{of.message}</p>;
  const sentences = reasonSentences(of);
  return (
    <>
      <p className="dim">Not now:</p>
      <ul className="dim">
        {sentences.slice(0, MOST_REASONS).map((each) => (
          <li key={each}>{each}</li>
        ))}
        {sentences.length > MOST_REASONS && <li>and {sentences.length - MOST_REASONS} other reasons</li>}
      </ul>
    </>
  );
}

function largestRequest(plan: TaskPlan): GpuRequest | undefined {
  const size = (request: GpuRequest) => (request.gpus ?? 1) * (request.nodes ?? 1);
  return plan.experiments.map((each) => each.request).toSorted((a, b) => size(b) - size(a))[0];
}
