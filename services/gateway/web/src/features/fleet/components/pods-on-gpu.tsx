import type { GpuPodView, GpuView } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { kindWords } from "@/lib/gpu-kinds";
import { gibibytes, percent } from "@/lib/units";

const COLUMNS: Column<GpuPodView>[] = [
  { name: "Pod", sortBy: (each) => each.pod, cell: (each) => each.pod },
  { name: "Namespace", sortBy: (each) => each.namespace, cell: (each) => each.namespace },
  { name: "Container", cell: (each) => each.container },
  { name: "Owner", cell: (each) => each.owner || "–" },
  { name: "GPU type", cell: (each) => kindWords(each.kind) },
  { name: "Given", unit: "of the GPU", isNumber: true, cell: (each) => percent(each.percent) },
  { name: "Utilization", isNumber: true, sortBy: (each) => each.utilization_percent, cell: (each) => percent(each.utilization_percent) },
  { name: "Memory used", isNumber: true, sortBy: (each) => each.memory_used_mb, cell: (each) => gibibytes(each.memory_used_mb) },
  { name: "Memory given", isNumber: true, cell: (each) => gibibytes(each.memory_given_mb) },
  { name: "Reading", title: "whose use it is", cell: (each) => (each.reading === "own" ? "its own" : "the whole GPU's") },
];

/** Whom Kubernetes gave this GPU, and what each uses of it. */
export function PodsOnGpu({ gpu }: { gpu: GpuView }) {
  if (!gpu.pods || gpu.pods.length === 0) return null;
  return (
    <section>
      <h2>Pods</h2>
      <DataTable
        label="Pods on this GPU"
        columns={COLUMNS}
        rows={gpu.pods}
        rowKey={(each) => `${each.namespace}/${each.pod}/${each.container}`}
      />
    </section>
  );
}
