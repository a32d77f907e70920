import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQuery } from "@tanstack/react-query";
import type { NodeView, ReservationView } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { Holder } from "@/components/holder";
import { Loaded } from "@/components/page";
import { When } from "@/components/when";
import { heldUntil } from "@/domain/held-until";
import { holdingOptions } from "@/lib/api/get-holding";
import { useNow } from "@/lib/time";
import { UNKNOWN } from "@/lib/units";
import { pastHoldersOptions } from "../api/get-past-holders";
import { PAST_COLUMNS } from "./past-holders";

const SHOWN = 50;

const gpusOn = (nodeId: string, { devices }: ReservationView): number[] =>
  devices.filter((device) => device.node_id === nodeId).map(({ index }) => index);

/** Who has GPUs of the node, and who had them. */
export function NodeReservations({ node }: { node: NodeView }) {
  const { node_id: nodeId } = node;
  const now = useNow();
  const holding = useQuery(holdingOptions);
  const past = useQuery(pastHoldersOptions(nodeId));
  const columns: Column<ReservationView>[] = [
    {
      name: t`Holder`,
      sortBy: ({ holder }) => holder,
      cell: ({ holder }) => <Holder of={holder} />,
    },
    { name: t`Requested by`, cell: ({ requester }) => requester || UNKNOWN },
    {
      name: t`Namespace`,
      sortBy: ({ namespace }) => namespace,
      cell: ({ namespace }) => namespace,
    },
    { name: "GPUs", cell: (reservation) => gpusOn(nodeId, reservation).join(", ") },
    { name: t`Since`, cell: ({ granted_at: at }) => <When at={at} /> },
    { name: t`Until`, cell: (reservation) => heldUntil(reservation, now) ?? UNKNOWN },
  ];
  return (
    <>
      <Loaded query={holding}>
        {(all) => (
          <DataTable
            label={t`Reservations`}
            columns={columns}
            rows={[...all.values()].filter((reservation) => gpusOn(nodeId, reservation).length > 0)}
            rowKey={({ reservation_id: id }) => id}
            empty={t`Nothing is reserved on this node.`}
          />
        )}
      </Loaded>
      <h2>
        <Trans>Earlier</Trans>
      </h2>
      <Loaded query={past}>
        {(all) => (
          <DataTable
            label={t`Earlier reservations`}
            columns={PAST_COLUMNS}
            rows={all.filter(({ granted_at: at }) => at).slice(0, SHOWN)}
            rowKey={({ reservation_id: id }) => id}
            empty={t`No earlier reservation of this node is kept.`}
          />
        )}
      </Loaded>
    </>
  );
}
