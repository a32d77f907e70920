import { useQuery } from "@tanstack/react-query";
import type { ClusterDevice, ResourceDefinition } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { UNKNOWN, whole } from "@/lib/units";
import { devicesOptions } from "../api/get-fleet";

/** In the reader's language, else in the other one. */
export function described(definition: ResourceDefinition, language: string): [text: string, lang: string] {
  const english: [string, string] = [definition.description_en, "en"];
  const chinese: [string, string] = [definition.description_zh, "zh"];
  const [first, second] = language.startsWith("zh") ? [chinese, english] : [english, chinese];
  return first[0] ? first : second;
}

const COLUMNS: Column<ClusterDevice>[] = [
  { name: "Cluster", sortBy: (each) => each.cluster_id, cell: (each) => each.cluster_id },
  { name: "Group", sortBy: (each) => each.definition.group, cell: (each) => each.definition.group },
  { name: "Resource", sortBy: (each) => each.definition.key, cell: (each) => each.definition.key },
  { name: "Default", isNumber: true, cell: (each) => whole(each.definition.default_value) },
  { name: "Limits", cell: (each) => each.definition.limits },
  { name: "Requests", cell: (each) => each.definition.requests },
  { name: "Enabled", cell: (each) => (each.definition.enabled ? "yes" : "no") },
  { name: "Description", cell: (each) => <Description of={each.definition} /> },
];

function Description({ of }: { of: ResourceDefinition }) {
  const [text, lang] = described(of, navigator.language);
  return text ? <span lang={lang}>{text}</span> : UNKNOWN;
}

/** What ConfigMaps of Kubernetes clusters define; nothing where none does. */
export function CustomDevices() {
  const devices = useQuery(devicesOptions);
  if (!devices.data?.length) return null;
  return (
    <section>
      <h2>Custom devices</h2>
      <DataTable
        label="Custom devices"
        columns={COLUMNS}
        rows={devices.data}
        rowKey={(each) => `${each.cluster_id} ${each.definition.key} ${each.definition.custom_name}`}
      />
    </section>
  );
}
