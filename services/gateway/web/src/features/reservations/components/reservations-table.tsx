import { t } from "@lingui/core/macro";
import { Button } from "@mantine/core";
import type { ReservationView } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { Holder } from "@/components/holder";
import { holderOf } from "@/domain/holder";
import { heldUntil } from "@/domain/held-until";
import { useMe } from "@/lib/api/get-me";
import { duration, moment, secondsSince, useNow } from "@/lib/time";
import { UNKNOWN } from "@/lib/units";
import { mayChange } from "../may-change";
import { devicesText } from "../usage-text";

interface ReservationsTableProps {
  reservations: ReservationView[];
  onOpen: (reservationId: string) => void;
}

export function ReservationsTable({ reservations, onOpen }: ReservationsTableProps) {
  const me = useMe();
  const now = useNow();
  const columns: Column<ReservationView>[] = [
    {
      name: t`Holder`,
      sortBy: (reservation) => reservation.holder,
      cell: ({ holder, reservation_id: id }) =>
        holder ? <Holder of={holder} /> : <span className="mono">{id.slice(-12)}</span>,
    },
    {
      name: t`Requested by`,
      sortBy: (reservation) => reservation.requester,
      cell: (reservation) => reservation.requester || UNKNOWN,
    },
    {
      name: t`Namespace`,
      sortBy: (reservation) => reservation.namespace,
      cell: (reservation) => reservation.namespace,
    },
    {
      name: "GPUs",
      isNumber: true,
      sortBy: (reservation) => reservation.devices.length,
      cell: ({ devices, cluster }) => devices.length || cluster?.gpus || UNKNOWN,
    },
    { name: t`Where`, cell: devicesText },
    {
      name: t`Held for`,
      isNumber: true,
      sortBy: (reservation) => reservation.granted_at,
      cell: ({ granted_at: at }) =>
        at ? (
          <span title={moment(at, now)}>{duration(Math.round(secondsSince(at, now) ?? 0))}</span>
        ) : (
          UNKNOWN
        ),
    },
    {
      name: t`Until`,
      sortBy: (reservation) => reservation.lease_expires_at,
      cell: (reservation) => heldUntil(reservation, now) ?? UNKNOWN,
    },
    { name: t`State`, cell: (reservation) => reservation.state },
    {
      name: t`Change`,
      cell: (reservation) => {
        const words = mayChange(me, reservation) ? t`Use, renew, release` : t`Use`;
        return (
          <Button
            size="compact-xs"
            variant="default"
            aria-label={`${words}: ${holderOf(reservation.holder).name || reservation.reservation_id}`}
            onClick={() => onOpen(reservation.reservation_id)}
          >
            {words}
          </Button>
        );
      },
    },
  ];
  return (
    <DataTable
      label={t`Reservations`}
      columns={columns}
      rows={reservations}
      rowKey={(reservation) => reservation.reservation_id}
    />
  );
}
