import { t } from "@lingui/core/macro";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { DataTable, type Column } from "@/components/data-table";
import { Facts } from "@/components/facts";
import { Loaded } from "@/components/page";
import { duration } from "@/lib/time";
import { whole } from "@/lib/units";
import { metricsOptions } from "../api/get-metrics";
import { metricsIn, type Metric } from "../metrics-text";

/** What flows through the bus and the gateway: for who runs the platform. */
export function Diagnostics() {
  const metrics = useQuery(metricsOptions);
  return <Loaded query={metrics}>{(text) => <Flow text={text} />}</Loaded>;
}

interface Consumer {
  consumer: string;
  stream: string;
  lag: number;
  unsettled: number;
}

const COLUMNS: Column<Consumer>[] = [
  {
    name: t`Consumer`,
    sortBy: (consumer) => consumer.consumer,
    cell: (consumer) => <span className="nowrap">{consumer.consumer.replaceAll("_", " ")}</span>,
  },
  {
    name: t`Lag`,
    unit: "messages",
    isNumber: true,
    sortBy: (consumer) => consumer.lag,
    cell: (consumer) => whole(consumer.lag),
  },
  {
    name: t`Unacknowledged`,
    unit: "messages",
    isNumber: true,
    sortBy: (consumer) => consumer.unsettled,
    cell: (consumer) => whole(consumer.unsettled),
  },
  { name: t`Stream`, sortBy: (consumer) => consumer.stream, cell: (consumer) => consumer.stream },
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
            t`outbox age`,
            duration(one("gpusteward_outbox_age_seconds")),
            t`age of the gateway's oldest unpublished event`,
          ],
          [
            t`max lag`,
            `${whole(Math.max(0, ...consumers.map((consumer) => consumer.lag)))} messages`,
          ],
          [t`events stored`, whole(one("gpusteward_gateway_events_stored_total"))],
          [t`samples received`, whole(one("gpusteward_gateway_samples_received_total"))],
          [
            t`live clients`,
            whole(one("gpusteward_gateway_metric_watchers")),
            t`connections that follow live readings`,
          ],
          [t`nodes seen`, whole(one("gpusteward_gateway_nodes")), t`in the last ten minutes`],
        ]}
      />
      <DataTable
        label={t`Consumers`}
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
