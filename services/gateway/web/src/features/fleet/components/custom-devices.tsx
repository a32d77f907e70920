import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import type { ClusterDevice, ResourceDefinition } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { UNKNOWN, whole } from "@/lib/units";

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
  { name: t`Cluster`, sortBy: (device) => device.cluster_id, cell: (device) => device.cluster_id },
  {
    name: t`Group`,
    sortBy: (device) => device.definition.group,
    cell: (device) => device.definition.group,
  },
  {
    name: t`Resource`,
    sortBy: (device) => device.definition.key,
    cell: (device) => device.definition.key,
  },
  { name: t`Default`, isNumber: true, cell: (device) => whole(device.definition.default_value) },
  { name: t`Limits`, cell: (device) => device.definition.limits },
  { name: t`Requests`, cell: (device) => device.definition.requests },
  { name: t`Enabled`, cell: (device) => (device.definition.enabled ? "yes" : "no") },
  { name: t`Description`, cell: (device) => <Description of={device.definition} /> },
];

function Description({ of }: { of: ResourceDefinition }) {
  const [text, lang] = descriptionIn(of, navigator.language);
  return text ? <span lang={lang}>{text}</span> : UNKNOWN;
}

/** What ConfigMaps of Kubernetes clusters define. */
export default function CustomDevices({ devices }: { devices: ClusterDevice[] }) {
  return (
    <section>
      <h2>
        <Trans>Custom devices</Trans>
      </h2>
      <DataTable
        label={t`Custom devices`}
        columns={COLUMNS}
        rows={devices}
        rowKey={(device) =>
          `${device.cluster_id} ${device.definition.key} ${device.definition.custom_name}`
        }
      />
    </section>
  );
}
