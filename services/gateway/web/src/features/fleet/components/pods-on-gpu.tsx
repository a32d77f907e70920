import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import type { GpuPodView, GpuView } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { kindWords } from "@/domain/gpu-kinds";
import { gibibytes, percent } from "@/lib/units";

const COLUMNS: Column<GpuPodView>[] = [
  { name: t`Pod`, sortBy: (pod) => pod.pod, cell: (pod) => pod.pod },
  { name: t`Namespace`, sortBy: (pod) => pod.namespace, cell: (pod) => pod.namespace },
  { name: t`Container`, cell: (pod) => pod.container },
  { name: t`Owner`, cell: (pod) => pod.owner || "–" },
  { name: t`GPU type`, cell: (pod) => kindWords(pod.kind) },
  { name: t`Given`, unit: t`of the GPU`, isNumber: true, cell: (pod) => percent(pod.percent) },
  {
    name: t`Utilization`,
    isNumber: true,
    sortBy: (pod) => pod.utilization_percent,
    cell: (pod) => percent(pod.utilization_percent),
  },
  {
    name: t`Memory used`,
    isNumber: true,
    sortBy: (pod) => pod.memory_used_mb,
    cell: (pod) => gibibytes(pod.memory_used_mb),
  },
  { name: t`Memory limit`, isNumber: true, cell: (pod) => gibibytes(pod.memory_given_mb) },
  {
    name: t`Reading`,
    title: t`what the usage covers`,
    cell: (pod) => (pod.reading === "own" ? "pod" : t`whole GPU`),
  },
];

/** Whom Kubernetes gave this GPU, and what each uses of it. */
export function PodsOnGpu({ gpu }: { gpu: GpuView }) {
  if (!gpu.pods || gpu.pods.length === 0) return null;
  return (
    <section>
      <h2>
        <Trans>Pods</Trans>
      </h2>
      <DataTable
        label={t`Pods on this GPU`}
        columns={COLUMNS}
        rows={gpu.pods}
        rowKey={(pod) => `${pod.namespace}/${pod.pod}/${pod.container}`}
      />
    </section>
  );
}
