import { Table } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMemo, type ReactNode } from "react";
import { useParams } from "react-router";
import type { GpuView, SeriesMetric } from "@schemas/messages";
import { Holder } from "@/components/holder";
import { Empty, Loaded, Page } from "@/components/page";
import { RangeSelect } from "@/components/range-select";
import { SimulatedBadge } from "@/components/simulated-badge";
import { StateMark } from "@/components/state-mark";
import { gpuKey, useLiveReading } from "@/lib/live/readings";
import { duration, fullMoment, moment, secondsSince, useNow } from "@/lib/time";
import { celsius, gibibytes, megahertz, percent, UNKNOWN, watts, whole } from "@/lib/units";
import { useTimeRange } from "@/lib/url-state";
import { useGpus } from "./api/use-fleet";
import { holdingOptions } from "@/lib/api/get-holding";
import { pastHoldersOptions } from "./api/get-past-holders";
import { PodsOnGpu } from "./components/pods-on-gpu";
import { PastHolders } from "./components/past-holders";
import { SeriesChart } from "./components/series-chart";
import { ServiceActions } from "./components/service-actions";
import { gpuState, withReading } from "./gpu-state";
import { heldUntil } from "@/domain/held-until";
import classes from "./gpu-page.module.css";

const METRICS: SeriesMetric[] = [
  "utilization_percent",
  "memory_used_mb",
  "temperature_c",
  "power_draw_w",
];

export function GpuPage() {
  const { nodeId = "", uuid = "" } = useParams();
  const gpus = useGpus();
  const listed = gpus.data?.find((gpu) => gpu.node_id === nodeId && gpu.uuid === uuid);
  if (listed) return <GpuContent listed={listed} listedAt={gpus.dataUpdatedAt} />;
  return (
    <Page title={`GPU ${uuid}`}>
      <Loaded query={gpus}>
        {() => (
          <Empty title={`No GPU ${uuid} on node ${nodeId}`}>See the fleet page for all GPUs.</Empty>
        )}
      </Loaded>
    </Page>
  );
}

function GpuContent({ listed, listedAt }: { listed: GpuView; listedAt: number }) {
  const [range] = useTimeRange();
  const now = useNow();
  const live = useLiveReading(gpuKey(listed));
  const holding = useQuery(holdingOptions).data;
  const past = useQuery(pastHoldersOptions(listed.node_id)).data;
  const reservations = useMemo(
    () => [...(holding?.values() ?? []), ...(past ?? [])],
    [holding, past],
  );
  const reservation = holding?.get(listed.reservation_id ?? "");
  const { gpu, takenAt } = withReading(listed, listedAt, live);
  const state = gpuState(gpu);
  const age = takenAt === null ? null : Math.max(0, (now - takenAt) / 1000);
  const facts: [string, ReactNode][] = [
    ["utilization", percent(gpu.utilization_percent)],
    ["memory", `${gibibytes(gpu.memory_used_mb)} of ${gibibytes(gpu.memory_total_mb)}`],
    ["temperature", celsius(gpu.temperature_c)],
    ["power", `${watts(gpu.power_draw_w)} of ${watts(gpu.power_limit_w)}`],
    ["clocks", `SM ${megahertz(gpu.sm_clock_mhz)}, memory ${megahertz(gpu.memory_clock_mhz)}`],
    ["throttled by", throttleText(gpu.throttle_reasons)],
    [
      "ECC errors",
      gpu.ecc_uncorrected === null
        ? UNKNOWN
        : `${whole(gpu.ecc_uncorrected)} uncorrected, ${whole(gpu.ecc_corrected)} corrected`,
    ],
    [
      "PCIe",
      gpu.pcie_generation === null
        ? UNKNOWN
        : `generation ${gpu.pcie_generation}, ${whole(gpu.pcie_width)} lanes`,
    ],
    ["age of the reading", age === null ? UNKNOWN : duration(Math.round(age))],
    ["holder", <Holder key="holder" of={gpu.holder} />],
    ["requested by", gpu.holders[0]?.requester || UNKNOWN],
    ["until", (reservation && heldUntil(reservation, now)) ?? UNKNOWN],
    ["namespace", gpu.namespace ?? UNKNOWN],
    [
      "MIG",
      gpu.mig_profile ?? (gpu.mig_enabled === null ? UNKNOWN : gpu.mig_enabled ? "on" : "off"),
    ],
    ["PCI", gpu.pci_bus_id ?? UNKNOWN],
    ["UUID", gpu.uuid],
  ];
  return (
    <Page
      title={`${gpu.node_id} GPU ${gpu.index}: ${gpu.name}`}
      aside={
        <>
          {gpu.simulated && <SimulatedBadge />}
          <StateMark {...state} />
        </>
      }
      actions={
        <ServiceActions
          nodeId={gpu.node_id}
          deviceUuid={gpu.uuid}
          isCordoned={gpu.cordon !== null}
          isQuarantined={gpu.state === "quarantined"}
        />
      }
    >
      {gpu.reasons.length > 0 && (
        <ul className={classes.reasons}>
          {gpu.reasons.map((reason) => (
            <li key={reason.code + reason.message}>{reason.message}</li>
          ))}
        </ul>
      )}
      <dl className={classes.facts}>
        {facts.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      <RangeSelect label="Time range" className={classes.range} />
      <div className={classes.charts}>
        {METRICS.map((metric) => (
          <SeriesChart
            key={metric}
            gpu={gpu}
            reservations={reservations}
            metric={metric}
            range={range}
          />
        ))}
      </div>
      <PodsOnGpu gpu={gpu} />
      <Processes gpu={gpu} />
      <PastHolders nodeId={gpu.node_id} uuid={gpu.uuid} />
      <Faults gpu={gpu} now={now} />
    </Page>
  );
}

/** As the driver names reasons; null: it does not tell. */
function throttleText(reasons: string[] | null): string {
  if (reasons === null) return UNKNOWN;
  return reasons.length === 0 ? "nothing" : reasons.join(", ").replaceAll("_", " ");
}

function Processes({ gpu }: { gpu: GpuView }) {
  return (
    <section>
      <h2>Processes</h2>
      {gpu.processes === null ? (
        <p className="dim">Not reported by this telemetry source.</p>
      ) : gpu.processes.length === 0 ? (
        <p className="dim">No process uses its memory.</p>
      ) : (
        <Table.ScrollContainer minWidth={420}>
          <Table verticalSpacing={4}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>process</Table.Th>
                <Table.Th className="number">id</Table.Th>
                <Table.Th className="number">memory</Table.Th>
                <Table.Th>reservation</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {gpu.processes.map((process) => (
                <Table.Tr key={process.pid}>
                  <Table.Td>{process.name ?? UNKNOWN}</Table.Td>
                  <Table.Td className="number">{process.pid}</Table.Td>
                  <Table.Td className="number">{gibibytes(process.memory_used_mb)}</Table.Td>
                  <Table.Td className="mono">{process.reservation_id ?? "none"}</Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Table.ScrollContainer>
      )}
    </section>
  );
}

function Faults({ gpu, now }: { gpu: GpuView; now: number }) {
  if (gpu.recent_faults.length === 0) return null;
  return (
    <section>
      <h2>Faults</h2>
      <ul className={classes.reasons}>
        {gpu.recent_faults.map((fault) => (
          <li key={fault.event_id}>
            <time dateTime={fault.occurred_at} title={fullMoment(fault.occurred_at)}>
              {moment(fault.occurred_at, now)}
            </time>{" "}
            <span className="dim">({duration(secondsSince(fault.occurred_at, now))} ago)</span>{" "}
            {fault.xid !== null && <strong>XID {fault.xid}</strong>} {fault.detail} Advice:{" "}
            {fault.action.replaceAll("_", " ")}.
          </li>
        ))}
      </ul>
    </section>
  );
}
