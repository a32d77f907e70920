import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { DataTable, type Column } from "@/components/data-table";
import { Facts } from "@/components/facts";
import { Loaded } from "@/components/page";
import { StateMark } from "@/components/state-mark";
import { duration } from "@/lib/time";
import { whole } from "@/lib/units";
import { metricsOptions } from "../api/get-metrics";
import { readinessOptions } from "../api/get-readiness";
import { metricsIn, type Metric } from "../metrics-text";
import classes from "./admin.module.css";

/** As `/readyz` names them. */
const PARTS = [
  "bus",
  "postgres",
  "scheduler",
  "orchestrator",
  "results",
  "executor",
  "telemetry",
  "disk",
];

export function PlatformHealth() {
  const ready = useQuery(readinessOptions);
  const metrics = useQuery(metricsOptions);
  return (
    <>
      <Loaded query={ready}>
        {({ missing, detail }) => (
          <>
            <ul className={classes.services} aria-label="Services">
              {PARTS.map((part) => (
                <li key={part}>
                  <strong>{part}</strong>{" "}
                  {missing.includes(part) ? (
                    <StateMark kind="bad" word={part === "disk" ? "full" : "not responding"} />
                  ) : (
                    <StateMark kind="ok" word={part === "disk" ? "has room" : "answers"} />
                  )}
                </li>
              ))}
            </ul>
            {detail && (
              <p>
                {detail}. <code>gpusteward doctor</code> on the platform&apos;s host shows details.
              </p>
            )}
          </>
        )}
      </Loaded>
      <Loaded query={metrics}>{(text) => <Flow text={text} />}</Loaded>
    </>
  );
}

interface Consumer {
  consumer: string;
  stream: string;
  lag: number;
  unsettled: number;
}

const COLUMNS: Column<Consumer>[] = [
  {
    name: "Consumer",
    sortBy: (consumer) => consumer.consumer,
    cell: (consumer) => <span className="nowrap">{consumer.consumer.replaceAll("_", " ")}</span>,
  },
  {
    name: "Lag",
    unit: "messages",
    isNumber: true,
    sortBy: (consumer) => consumer.lag,
    cell: (consumer) => whole(consumer.lag),
  },
  {
    name: "Unacknowledged",
    unit: "messages",
    isNumber: true,
    sortBy: (consumer) => consumer.unsettled,
    cell: (consumer) => whole(consumer.unsettled),
  },
  { name: "Stream", sortBy: (consumer) => consumer.stream, cell: (consumer) => consumer.stream },
];

const READ = ["gpusteward_consumer_", "gpusteward_outbox_age_seconds", "gpusteward_gateway_"];

/** How far behind each consumer is, and how long an event has waited to be published. */
function Flow({ text }: { text: string }) {
  const metrics = useMemo(() => metricsIn(text, READ), [text]);
  const one = (name: string): number | undefined =>
    metrics.find((metric) => metric.name === name)?.value;
  const consumers = consumersOf(metrics);
  return (
    <>
      <Facts
        facts={[
          [
            "outbox age",
            duration(one("gpusteward_outbox_age_seconds")),
            "age of the gateway's oldest unpublished event",
          ],
          [
            "max lag",
            `${whole(Math.max(0, ...consumers.map((consumer) => consumer.lag)))} messages`,
          ],
          ["events stored", whole(one("gpusteward_gateway_events_stored_total"))],
          ["samples received", whole(one("gpusteward_gateway_samples_received_total"))],
          [
            "live clients",
            whole(one("gpusteward_gateway_metric_watchers")),
            "connections that follow live readings",
          ],
          ["nodes seen", whole(one("gpusteward_gateway_nodes")), "in the last ten minutes"],
        ]}
      />
      <DataTable
        label="Consumers"
        columns={COLUMNS}
        rows={consumers}
        rowKey={(consumer) => consumer.consumer}
      />
    </>
  );
}

function consumersOf(samples: Metric[]): Consumer[] {
  const unsettled = new Map(
    samples
      .filter((metric) => metric.name === "gpusteward_consumer_unsettled_messages")
      .map((metric) => [metric.labels.consumer, metric.value]),
  );
  return samples
    .filter((metric) => metric.name === "gpusteward_consumer_lag_messages")
    .map(({ labels, value }) => ({
      consumer: labels.consumer ?? "",
      stream: labels.stream ?? "",
      lag: value,
      unsettled: unsettled.get(labels.consumer) ?? 0,
    }))
    .sort((a, b) => b.lag - a.lag || b.unsettled - a.unsettled);
}
