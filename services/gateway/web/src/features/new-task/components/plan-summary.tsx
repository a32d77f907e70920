import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQuery, type UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";
import type { AvailabilityView, GpuRequest, PlanCost, TaskPlan } from "@schemas/messages";
import { Facts } from "@/components/facts";
import { Findings } from "@/components/findings";
import { StateMark } from "@/components/state-mark";
import { roughly, secondsSince, useNow } from "@/lib/time";
import { number, UNKNOWN, whole, withUnit } from "@/lib/units";
import { availabilityOptions } from "../api/get-availability";
import { valueAt, type Draft } from "../draft";
import { experimentsAtMost, gpusOf } from "../estimate";
import { reasonSentences } from "../reason-sentences";

const MOST_REASONS = 4;

interface PlanSummaryProps {
  plan: UseQueryResult<TaskPlan>;
  draft: Draft | null;
  isSettled: boolean;
}

/** What would be run, at what cost at most, and when it could start. */
export function PlanSummary({ plan, draft, isSettled }: PlanSummaryProps) {
  const taskPlan = plan.data;
  const isReserved = taskPlan?.mode !== "endpoint";
  const largest = taskPlan && isReserved ? largestRequest(taskPlan) : undefined;
  const availability = useQuery(
    availabilityOptions(taskPlan?.missing.length ? undefined : largest),
  ).data;
  const now = useNow();
  const waitSeconds = secondsSince(
    new Date(now).toISOString(),
    Date.parse(availability?.expected_start_at ?? ""),
  );
  const gpus = largest ? gpusOf(largest) : Number(valueAt(draft ?? {}, "gpus.count") ?? NaN);
  const experiments = taskPlan ? experimentsAtMost(taskPlan) : null;
  const hours = taskPlan?.gpu_hours_at_most ?? null;
  const cost = taskPlan?.cost_at_most ?? null;
  const findings = taskPlan?.experiments.flatMap((experiment) => experiment.preflight) ?? [];
  const ofGpus: [string, ReactNode, string?][] = [
    [
      t`min GPU memory`,
      largest?.min_memory_mb ? withUnit(number(largest.min_memory_mb / 1024), "GiB") : UNKNOWN,
    ],
    [
      t`max GPU time`,
      hours === null ? UNKNOWN : withUnit(number(hours), "GPU-h"),
      t`if every experiment runs to its time limit, within the budget`,
    ],
    [
      t`max cost`,
      cost ? costText(cost) : UNKNOWN,
      t`at the operator's prices for the eligible GPU models`,
    ],
    [
      t`starts`,
      availability ? (
        availability.available ? (
          <StateMark kind="ok" word={t`now`} title={availability.message} />
        ) : (
          <StateMark
            kind={availability.impossible ? "bad" : "attention"}
            word={
              availability.impossible
                ? t`not possible on this fleet`
                : waitSeconds !== null && Number.isFinite(waitSeconds)
                  ? t`in about ${roughly(waitSeconds)}`
                  : t`when GPUs are free`
            }
            title={availability.message}
          />
        )
      ) : (
        UNKNOWN
      ),
    ],
  ];
  return (
    <section aria-label={t`task plan`} aria-live="polite" style={{ opacity: isSettled ? 1 : 0.6 }}>
      <Facts
        facts={[
          [
            t`experiments`,
            taskPlan
              ? `${taskPlan.experiments.length > 0 ? "" : t`up to `}${whole(experiments)}${taskPlan.cut ? t` (${whole(taskPlan.cut)} cut)` : ""}`
              : UNKNOWN,
          ],
          [t`GPUs per experiment`, isReserved ? number(gpus) : t`none, the server runs already`],
          ...(isReserved ? ofGpus : []),
        ]}
      />
      {availability && <WhyNotNow of={availability} />}
      {availability?.suggestion && (
        <p>
          <Trans>What would help: {availability.suggestion.message}</Trans>
        </p>
      )}
      {plan.error && isSettled && (
        <p role="alert" style={{ color: "var(--gs-bad)" }}>
          {plan.error.message}
        </p>
      )}
      {findings.length > 0 && (
        <>
          <h2>
            <Trans>Preflight</Trans>
          </h2>
          <Findings findings={findings} ofHowMany={taskPlan?.experiments.length} />
        </>
      )}
      {taskPlan?.missing.map((missing) => (
        <p key={missing} role="alert" style={{ color: "var(--gs-bad)" }}>
          {missing}
        </p>
      ))}
      {taskPlan?.notes.map((note) => (
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
      <p className="dim">
        <Trans>Why not now:</Trans>
      </p>
      <ul className="dim">
        {sentences.slice(0, MOST_REASONS).map((sentence) => (
          <li key={sentence}>{sentence}</li>
        ))}
        {sentences.length > MOST_REASONS && (
          <li>
            <Trans>and {sentences.length - MOST_REASONS} other reasons</Trans>
          </li>
        )}
      </ul>
    </>
  );
}

function costText({ least, most, currency }: PlanCost): string {
  const low = number(least);
  const high = number(most);
  return withUnit(low === high ? low : t`${low} to ${high}`, currency);
}

function largestRequest(plan: TaskPlan): GpuRequest | undefined {
  const planned = plan.experiments.length > 0 ? plan.experiments : plan.samples;
  return planned
    .map((experiment) => experiment.request)
    .toSorted((a, b) => gpusOf(b) - gpusOf(a))[0];
}
