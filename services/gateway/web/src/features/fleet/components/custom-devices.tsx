import { useQuery } from "@tanstack/react-query";
import type { ClusterDevice, ResourceDefinition } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { UNKNOWN, whole } from "@/lib/units";
import { clusterDevicesOptions } from "../api/get-cluster-devices";

/** In the reader's language, else in the other one. */
export function descriptionIn(
  definition: ResourceDefinition,
  language: string,
): [text: string, lang: string] {
  const english: [string, string] = [definition.description_en, "en"];
  const chinese: [string, string] = [definition.description_zh, "zh"];
  const [first, second] = language.startsWith("zh") ? [chinese, english] : [english, chinese];
  return first[0] ? first : second;
}

const COLUMNS: Column<ClusterDevice>[] = [
  { name: "Cluster", sortBy: (device) => device.cluster_id, cell: (device) => device.cluster_id },
  {
    name: "Group",
    sortBy: (device) => device.definition.group,
    cell: (device) => device.definition.group,
  },
  {
    name: "Resource",
    sortBy: (device) => device.definition.key,
    cell: (device) => device.definition.key,
  },
  { name: "Default", isNumber: true, cell: (device) => whole(device.definition.default_value) },
  { name: "Limits", cell: (device) => device.definition.limits },
  { name: "Requests", cell: (device) => device.definition.requests },
  { name: "Enabled", cell: (device) => (device.definition.enabled ? "yes" : "no") },
  { name: "Description", cell: (device) => <Description of={device.definition} /> },
];

function Description({ of }: { of: ResourceDefinition }) {
  const [text, lang] = descriptionIn(of, navigator.language);
  return text ? <span lang={lang}>{text}</span> : UNKNOWN;
}

/** What ConfigMaps of Kubernetes clusters define; nothing where none does. */
export function CustomDevices() {
  const devices = useQuery(clusterDevicesOptions);
  if (!devices.data?.length) return null;
  return (
    <section>
      <h2>Custom devices</h2>
      <DataTable
        label="Custom devices"
        columns={COLUMNS}
        rows={devices.data}
        rowKey={(device) =>
          `${device.cluster_id} ${device.definition.key} ${device.definition.custom_name}`
        }
      />
    </section>
  );
}
