import type { ExperimentDetail, Failure, GpuMemoryTrend } from "@schemas/messages";
import { CopyText } from "@/components/copy-text";
import { byNodes } from "@/domain/gathered-reasons";
import { moment } from "@/lib/time";
import { gibibytes, whole } from "@/lib/units";
import classes from "./troubles.module.css";

/** Why it failed, what memory did before if it was for want of it, and what to do next. */
export function FailureBlock({ failure, memory }: { failure: Failure; memory: GpuMemoryTrend[] }) {
  return (
    <section className={classes.failure} role="alert" aria-label="failure">
      <strong>
        {failure.kind.replaceAll("_", " ")}
        {failure.phase && ` while ${failure.phase.replaceAll("_", " ")}`}
        {failure.exit_code !== null && `, exit code ${failure.exit_code}`}
      </strong>
      <div>{failure.message}</div>
      {failure.hint && (
        <div>
          <strong>Next:</strong>{" "}
          {failure.hint
            .split("`")
            .map((part, index) => (index % 2 ? <code key={index}>{part}</code> : part))}
        </div>
      )}
      {memory.length > 0 && (
        <div>
          Memory in the last minute:
          <ul>
            {memory.map((gpu) => (
              <li key={`${gpu.node_id} ${gpu.index}`}>
                {gpu.node_id} {gpu.index}: {gpu.is_growing ? "growing" : "flat"},{" "}
                {gibibytes(gpu.start_mb)}, max {gibibytes(gpu.peak_mb)}, final{" "}
                {gibibytes(gpu.last_mb)} of {gibibytes(gpu.total_mb)}
                {gpu.simulated && " (simulated)"}
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
    <section className={classes.waiting} aria-label="why it is waiting">
      <strong>{explanation?.summary || "Waiting for GPUs."}</strong>
      {explanation && (
        <div className="dim">
          position {whole(explanation.queue_position)} of {whole(explanation.queue_length)}
          {explanation.expected_start_at &&
            `, expected to start at ${moment(explanation.expected_start_at)}`}
        </div>
      )}
      {missing.includes("scheduler") && <div className="dim">The scheduler is not responding.</div>}
      <ul>
        {byNodes(reasons).map(({ nodes, sentences }) => (
          <li key={nodes}>
            {nodes}: {sentences.map(({ message }) => message).join("; ")}
          </li>
        ))}
      </ul>
      {explanation?.suggestion && (
        <div>
          <strong>Would start with:</strong> {explanation.suggestion.message}
        </div>
      )}
      {experiment.reservation_id && (
        <CopyText
          text={`gpusteward why ${experiment.reservation_id}`}
          label="the command that explains it"
        />
      )}
    </section>
  );
}
