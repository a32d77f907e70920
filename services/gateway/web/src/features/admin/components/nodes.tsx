import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Group } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import type { NodeView } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { InviteServer } from "@/components/nodes/invite-server";
import { NodeActions } from "@/components/nodes/node-actions";
import { NodeMark } from "@/components/nodes/node-mark";
import { Empty, Loaded } from "@/components/page";
import { When } from "@/components/when";
import { nodesOptions } from "@/lib/api/get-nodes";
import { useIsAdmin } from "@/lib/api/get-me";
import { paths } from "@/lib/paths";
import { UNKNOWN } from "@/lib/units";
import { useSharedSearch } from "@/lib/url-state";

const REFRESH_MS = 5_000;

/** Every server with its agent and driver, and what can be done with it. */
export function Nodes() {
  const nodes = useQuery({ ...nodesOptions, refetchInterval: REFRESH_MS });
  const search = useSharedSearch();
  const isAdmin = useIsAdmin();
  const columns: Column<NodeView>[] = [
    {
      name: t`Node`,
      sortBy: ({ node_id: id }) => id,
      cell: ({ node_id: id }) => <Link to={{ pathname: paths.node(id), search }}>{id}</Link>,
    },
    { name: t`State`, cell: (node) => <NodeMark node={node} isAlways /> },
    {
      name: "GPUs",
      unit: t`free of all`,
      isNumber: true,
      sortBy: ({ gpus_total: total }) => total,
      cell: ({ gpus_free: free, gpus_total: total }) => t`${free} of ${total}`,
    },
    {
      name: t`Agent`,
      unit: "version",
      sortBy: ({ host }) => host?.release,
      cell: ({ host }) => host?.release ?? UNKNOWN,
    },
    {
      name: t`Driver`,
      sortBy: ({ host }) => host?.driver_version,
      cell: ({ host }) => host?.driver_version ?? UNKNOWN,
    },
    {
      name: t`Last seen`,
      sortBy: ({ last_seen_at: at }) => at,
      cell: ({ last_seen_at: at }) => <When at={at} isRelative />,
    },
    {
      name: t`Labels`,
      cell: ({ labels }) =>
        Object.entries(labels)
          .map(([key, value]) => `${key}=${value}`)
          .join(", ") || UNKNOWN,
    },
    ...(isAdmin
      ? [
          {
            name: t`Actions`,
            cell: (node: NodeView) => (
              <Group gap={4} role="group" aria-label={t`Actions of ${node.node_id}`}>
                <NodeActions node={node} />
              </Group>
            ),
          },
        ]
      : []),
  ];
  return (
    <>
      <Group mb="sm">
        <InviteServer />
      </Group>
      <Loaded query={nodes}>
        {(all) =>
          all.length === 0 ? (
            <Empty title={t`No nodes yet`}>
              <Trans>
                <code>gpusteward node invite NAME</code> makes the command by which a server joins.
              </Trans>
            </Empty>
          ) : (
            <DataTable
              label={t`Nodes`}
              columns={columns}
              rows={all}
              rowKey={({ node_id: id }) => id}
            />
          )
        }
      </Loaded>
    </>
  );
}
