import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { DataTable, type Column } from "@/components/data-table";
import { Facts } from "@/components/facts";
import { Loaded } from "@/components/page";
import { StateMark } from "@/components/state-mark";
import { duration } from "@/lib/time";
import { whole } from "@/lib/units";
import { metricsOptions, readyOptions } from "../api/get-admin";
import { metricsIn, type Metric } from "../metrics-text";
import classes from "./admin.module.css";

/** As `/readyz` names them. */
const PARTS = ["bus", "postgres", "scheduler", "orchestrator", "results", "executor", "telemetry", "disk"];

export function PlatformHealth() {
  const ready = useQuery(readyOptions);
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
                    <StateMark kind="bad" word={part === "disk" ? "full" : "does not answer"} />
                  ) : (
                    <StateMark kind="ok" word={part === "disk" ? "has room" : "answers"} />
                  )}
                </li>
              ))}
            </ul>
            {detail && (
              <p>
                {detail}. <code>gpusteward doctor</code> on the platform&apos;s host says more.
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
  { name: "Consumer", sortBy: (each) => each.consumer, cell: (each) => <span className="nowrap">{each.consumer.replaceAll("_", " ")}</span> },
  { name: "Lag", unit: "messages", isNumber: true, sortBy: (each) => each.lag, cell: (each) => whole(each.lag) },
  {
    name: "Not settled",
    unit: "messages",
    isNumber: true,
    sortBy: (each) => each.unsettled,
    cell: (each) => whole(each.unsettled),
  },
  { name: "Stream", sortBy: (each) => each.stream, cell: (each) => each.stream },
];

const READ = [
  "gpusteward_consumer_",
  "gpusteward_outbox_age_seconds",
  "gpusteward_gateway_",
];

/** How far behind each consumer is, and how long an event has waited to be published. */
function Flow({ text }: { text: string }) {
  const found = useMemo(() => metricsIn(text, READ), [text]);
  const one = (name: string): number | undefined => found.find((each) => each.name === name)?.value;
  const consumers = consumersOf(found);
  return (
    <>
      <Facts
        facts={[
          ["outbox age", duration(one("gpusteward_outbox_age_seconds")), "of the gateway's oldest event that is not published"],
          ["greatest lag", `${whole(Math.max(0, ...consumers.map((each) => each.lag)))} messages`],
          ["events stored", whole(one("gpusteward_gateway_events_stored_total"))],
          ["samples received", whole(one("gpusteward_gateway_samples_received_total"))],
          ["pages and watchers", whole(one("gpusteward_gateway_metric_watchers")), "that follow live readings"],
          ["nodes heard", whole(one("gpusteward_gateway_nodes")), "within ten minutes"],
        ]}
      />
      <DataTable label="Consumers" columns={COLUMNS} rows={consumers} rowKey={(each) => each.consumer} />
    </>
  );
}

function consumersOf(found: Metric[]): Consumer[] {
  const unsettled = new Map(
    found
      .filter((each) => each.name === "gpusteward_consumer_unsettled_messages")
      .map((each) => [each.labels.consumer, each.value]),
  );
  return found
    .filter((each) => each.name === "gpusteward_consumer_lag_messages")
    .map(({ labels, value }) => ({
      consumer: labels.consumer ?? "",
      stream: labels.stream ?? "",
      lag: value,
      unsettled: unsettled.get(labels.consumer) ?? 0,
    }))
    .sort((a, b) => b.lag - a.lag || b.unsettled - a.unsettled);
}
