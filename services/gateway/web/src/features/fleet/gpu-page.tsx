import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Table } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMemo, type ReactNode } from "react";
import { Link, useParams } from "react-router";
import type { GpuView, SeriesMetric } from "@schemas/messages";
import { DownloadCharts } from "@/components/chart/download-charts";
import { Holder } from "@/components/holder";
import { Empty, Loaded, Page } from "@/components/page";
import { RangeSelect } from "@/components/range-select";
import { SimulatedBadge } from "@/components/simulated-badge";
import { StateMark } from "@/components/state-mark";
import { gpuKey, useLiveReading } from "@/lib/live/readings";
import { duration, fullMoment, moment, secondsSince, useNow } from "@/lib/time";
import {
  celsius,
  gibibytes,
  megahertz,
  number,
  percent,
  UNKNOWN,
  watts,
  whole,
  withUnit,
} from "@/lib/units";
import { paths } from "@/lib/paths";
import { useSharedSearch, useTimeRange } from "@/lib/url-state";
import { useGpus } from "./api/use-fleet";
import { holdingOptions } from "@/lib/api/get-holding";
import { pastHoldersOptions } from "./api/get-past-holders";
import { PodsOnGpu } from "./components/pods-on-gpu";
import { PastHolders } from "./components/past-holders";
import { SeriesChart } from "./components/series-chart";
import { ServiceActions } from "@/components/nodes/service-actions";
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
    <Page title={t`GPU ${uuid}`}>
      <Loaded query={gpus}>
        {() => (
          <Empty title={t`No GPU ${uuid} on node ${nodeId}`}>
            <Trans>See the fleet page for all GPUs.</Trans>
          </Empty>
        )}
      </Loaded>
    </Page>
  );
}

function GpuContent({ listed, listedAt }: { listed: GpuView; listedAt: number }) {
  const [range] = useTimeRange();
  const search = useSharedSearch();
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
    [t`GPU utilization`, percent(gpu.utilization_percent)],
    [t`memory copy utilization`, percent(gpu.memory_utilization_percent)],
    [t`encoder and decoder`, `${percent(gpu.encoder_percent)}, ${percent(gpu.decoder_percent)}`],
    [
      t`framebuffer memory used`,
      t`${gibibytes(gpu.memory_used_mb)} of ${gibibytes(gpu.memory_total_mb)}`,
    ],
    [t`GPU temperature`, celsius(gpu.temperature_c)],
    [t`power usage`, t`${watts(gpu.power_draw_w)} of ${watts(gpu.power_limit_w)}`],
    [
      t`SM and memory clocks`,
      t`SM ${megahertz(gpu.sm_clock_mhz)}, memory ${megahertz(gpu.memory_clock_mhz)}`,
    ],
    [
      t`total energy`,
      gpu.energy_mj === null
        ? UNKNOWN
        : withUnit(number(gpu.energy_mj / MILLIJOULES_PER_KWH), "kWh"),
    ],
    [t`performance state`, gpu.performance_state === null ? UNKNOWN : `P${gpu.performance_state}`],
    [t`fan`, percent(gpu.fan_percent)],
    [t`clock throttle reasons`, throttleText(gpu.throttle_reasons)],
    [
      t`ECC errors`,
      gpu.ecc_uncorrected === null
        ? UNKNOWN
        : t`${whole(gpu.ecc_uncorrected)} uncorrected, ${whole(gpu.ecc_corrected)} corrected`,
    ],
    [
      t`remapped rows`,
      gpu.remap_failed
        ? t`failed: replace the GPU`
        : gpu.remap_pending
          ? t`pending: reset the GPU`
          : gpu.remap_pending === null
            ? UNKNOWN
            : t`none pending`,
    ],
    [t`last XID error`, lastXid(gpu) === null ? t`none` : String(lastXid(gpu))],
    [
      "PCIe",
      gpu.pcie_generation === null
        ? UNKNOWN
        : t`generation ${gpu.pcie_generation}, ${whole(gpu.pcie_width)} lanes`,
    ],
    [t`age of the reading`, age === null ? UNKNOWN : duration(Math.round(age))],
    [t`holder`, <Holder key="holder" of={gpu.holder} />],
    [t`requested by`, gpu.holders[0]?.requester || UNKNOWN],
    [t`until`, (reservation && heldUntil(reservation, now)) ?? UNKNOWN],
    [t`namespace`, gpu.namespace ?? UNKNOWN],
    [
      "MIG",
      gpu.mig_profile ?? (gpu.mig_enabled === null ? UNKNOWN : gpu.mig_enabled ? "on" : "off"),
    ],
    ["PCI", gpu.pci_bus_id ?? UNKNOWN],
    ["UUID", gpu.uuid],
  ];
  return (
    <Page
      title={t`${gpu.node_id} GPU ${gpu.index}: ${gpu.name}`}
      aside={
        <>
          <Link to={{ pathname: paths.node(gpu.node_id), search }}>{t`Node ${gpu.node_id}`}</Link>
          {gpu.simulated && <SimulatedBadge />}
          <StateMark {...state} />
        </>
      }
      actions={
        <>
          <DownloadCharts />
          <ServiceActions
            nodeId={gpu.node_id}
            deviceUuid={gpu.uuid}
            isCordoned={gpu.cordon !== null}
            isQuarantined={gpu.state === "quarantined"}
          />
        </>
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
      <RangeSelect label={t`Time range`} className={classes.range} />
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

const MILLIJOULES_PER_KWH = 3.6e9;

/** The newest XID among the faults that are still told of. */
function lastXid({ recent_faults: faults }: GpuView): number | null {
  const newest = faults
    .filter(({ xid }) => xid !== null)
    .toSorted((a, b) => b.occurred_at.localeCompare(a.occurred_at))[0];
  return newest?.xid ?? null;
}

/** As the driver names reasons; null: it does not tell. */
function throttleText(reasons: string[] | null): string {
  if (reasons === null) return UNKNOWN;
  return reasons.length === 0 ? "nothing" : reasons.join(", ").replaceAll("_", " ");
}

function Processes({ gpu }: { gpu: GpuView }) {
  return (
    <section>
      <h2>
        <Trans>Processes</Trans>
      </h2>
      {gpu.processes === null ? (
        <p className="dim">
          <Trans>Not reported by this telemetry source.</Trans>
        </p>
      ) : gpu.processes.length === 0 ? (
        <p className="dim">
          <Trans>No process uses its memory.</Trans>
        </p>
      ) : (
        <Table.ScrollContainer minWidth={420}>
          <Table verticalSpacing={4}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>
                  <Trans>process</Trans>
                </Table.Th>
                <Table.Th className="number">
                  <Trans>id</Trans>
                </Table.Th>
                <Table.Th className="number">
                  <Trans>memory</Trans>
                </Table.Th>
                <Table.Th>
                  <Trans>reservation</Trans>
                </Table.Th>
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
      <h2>
        <Trans>Faults</Trans>
      </h2>
      <ul className={classes.reasons}>
        {gpu.recent_faults.map((fault) => (
          <li key={fault.event_id}>
            <time dateTime={fault.occurred_at} title={fullMoment(fault.occurred_at)}>
              {moment(fault.occurred_at, now)}
            </time>{" "}
            <span className="dim">
              <Trans>({duration(secondsSince(fault.occurred_at, now))} ago)</Trans>
            </span>{" "}
            {fault.xid !== null && (
              <strong>
                <Trans>XID {fault.xid}</Trans>
              </strong>
            )}{" "}
            <Trans>
              {fault.detail} Advice: {fault.action.replaceAll("_", " ")}.
            </Trans>
          </li>
        ))}
      </ul>
    </section>
  );
}
