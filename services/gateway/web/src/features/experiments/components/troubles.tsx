import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import type { ExperimentDetail, Failure, GpuMemoryTrend } from "@schemas/messages";
import { CopyText } from "@/components/copy-text";
import { byNodes } from "@/domain/gathered-reasons";
import { moment } from "@/lib/time";
import { gibibytes, whole } from "@/lib/units";
import classes from "./troubles.module.css";

/** Why it failed, what memory did before if it was for want of it, and what to do next. */
export function FailureBlock({ failure, memory }: { failure: Failure; memory: GpuMemoryTrend[] }) {
  return (
    <section className={classes.failure} role="alert" aria-label={t`failure`}>
      <strong>
        {failure.kind.replaceAll("_", " ")}
        {failure.phase && t` while ${failure.phase.replaceAll("_", " ")}`}
        {failure.exit_code !== null && t`, exit code ${failure.exit_code}`}
      </strong>
      <div>{failure.message}</div>
      {failure.hint && (
        <div>
          <strong>
            <Trans>Next:</Trans>
          </strong>{" "}
          {failure.hint
            .split("`")
            .map((part, index) => (index % 2 ? <code key={index}>{part}</code> : part))}
        </div>
      )}
      {memory.length > 0 && (
        <div>
          <Trans>Memory in the last minute:</Trans>
          <ul>
            {memory.map((gpu) => (
              <li key={`${gpu.node_id} ${gpu.index}`}>
                <Trans>
                  {gpu.node_id} {gpu.index}: {gpu.is_growing ? "growing" : "flat"},{" "}
                  {gibibytes(gpu.start_mb)}, max {gibibytes(gpu.peak_mb)}, final{" "}
                  {gibibytes(gpu.last_mb)} of {gibibytes(gpu.total_mb)}
                  {gpu.simulated && " (simulated)"}
                </Trans>
              </li>
            ))}
          </ul>
        </div>
      )}
      {failure.log_tail.length > 0 && (
        <pre className={classes.tail}>{failure.log_tail.join("\n")}</pre>
      )}
    </section>
  );
}

/** Every reason why it is waiting, and the smallest change that would start it. */
export function WaitingBlock({ experiment }: { experiment: ExperimentDetail }) {
  const { explanation, waiting_reasons, missing } = experiment;
  const reasons = explanation?.reasons ?? waiting_reasons;
  return (
    <section className={classes.waiting} aria-label={t`why it is waiting`}>
      <strong>{explanation?.summary || t`Waiting for GPUs.`}</strong>
      {explanation && (
        <div className="dim">
          <Trans>
            position {whole(explanation.queue_position)} of {whole(explanation.queue_length)}
            {explanation.expected_start_at &&
              t`, expected to start at ${moment(explanation.expected_start_at)}`}
          </Trans>
        </div>
      )}
      {missing.includes("scheduler") && (
        <div className="dim">
          <Trans>The scheduler is not responding.</Trans>
        </div>
      )}
      <ul>
        {byNodes(reasons).map(({ nodes, sentences }) => (
          <li key={nodes}>
            {nodes}: {sentences.map(({ message }) => message).join("; ")}
          </li>
        ))}
      </ul>
      {explanation?.suggestion && (
        <div>
          <strong>
            <Trans>Would start with:</Trans>
          </strong>{" "}
          {explanation.suggestion.message}
        </div>
      )}
      {experiment.reservation_id && (
        <CopyText
          text={`gpusteward why ${experiment.reservation_id}`}
          label={t`the command that explains it`}
        />
      )}
    </section>
  );
}
