import { t } from "@lingui/core/macro";
import type { GpuProcessView, GpuView } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { Holder } from "@/components/holder";
import { gibibytes, UNKNOWN } from "@/lib/units";

interface Row {
  gpu: GpuView;
  process: GpuProcessView;
}

const holderOfRow = ({ gpu, process }: Row): string | null =>
  gpu.holders.find(({ reservation_id: id }) => id === process.reservation_id)?.holder ??
  (process.reservation_id === gpu.reservation_id ? gpu.holder : null);

const COLUMNS: Column<Row>[] = [
  {
    name: t`Process`,
    sortBy: ({ process }) => process.name,
    cell: ({ process }) => process.name ?? UNKNOWN,
  },
  { name: "PID", isNumber: true, cell: ({ process }) => process.pid },
  { name: "GPU", isNumber: true, sortBy: ({ gpu }) => gpu.index, cell: ({ gpu }) => gpu.index },
  {
    name: t`Memory`,
    isNumber: true,
    sortBy: ({ process }) => process.memory_used_mb,
    cell: ({ process }) => gibibytes(process.memory_used_mb),
  },
  {
    name: t`Reserved by`,
    cell: (row) =>
      row.process.reservation_id ? <Holder of={holderOfRow(row)} /> : t`no reservation`,
  },
];

/** Every process that uses memory of the node's GPUs. */
export function NodeProcesses({ gpus }: { gpus: GpuView[] }) {
  const isReported = gpus.some(({ processes }) => processes !== null);
  const rows = gpus.flatMap((gpu) => (gpu.processes ?? []).map((process) => ({ gpu, process })));
  return (
    <DataTable
      label={t`Processes`}
      columns={COLUMNS}
      rows={rows}
      rowKey={({ gpu, process }) => `${gpu.uuid} ${process.pid}`}
      empty={
        isReported
          ? t`No process uses a GPU of this node.`
          : t`Processes are not reported by this telemetry source.`
      }
    />
  );
}
