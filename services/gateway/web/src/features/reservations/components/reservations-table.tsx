import { Button } from "@mantine/core";
import type { ReservationView } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { Holder } from "@/components/holder";
import { heldUntil } from "@/domain/held-until";
import { useMe } from "@/lib/api/get-me";
import { duration, moment, secondsSince, useNow } from "@/lib/time";
import { UNKNOWN } from "@/lib/units";
import { useUrlState } from "@/lib/url-state";
import { mayChange } from "../may-change";
import { devicesText } from "../usage-text";
import { ReservationDialog } from "./reservation-dialog";

export function ReservationsTable({ reservations }: { reservations: ReservationView[] }) {
  const me = useMe();
  const now = useNow();
  const [openedId, setOpenedId] = useUrlState("open", "");
  const opened = reservations.find(({ reservation_id: id }) => id === openedId);
  const columns: Column<ReservationView>[] = [
    {
      name: "Holder",
      sortBy: (reservation) => reservation.holder,
      cell: ({ holder, reservation_id: id }) =>
        holder ? <Holder of={holder} /> : <span className="mono">{id.slice(-12)}</span>,
    },
    {
      name: "Requested by",
      sortBy: (reservation) => reservation.requester,
      cell: (reservation) => reservation.requester || UNKNOWN,
    },
    {
      name: "Namespace",
      sortBy: (reservation) => reservation.namespace,
      cell: (reservation) => reservation.namespace,
    },
    {
      name: "GPUs",
      isNumber: true,
      sortBy: (reservation) => reservation.devices.length,
      cell: ({ devices, cluster }) => devices.length || cluster?.gpus || UNKNOWN,
    },
    { name: "Where", cell: devicesText },
    {
      name: "Held for",
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
      name: "Until",
      sortBy: (reservation) => reservation.lease_expires_at,
      cell: (reservation) => heldUntil(reservation, now) ?? UNKNOWN,
    },
    { name: "State", cell: (reservation) => reservation.state },
    {
      name: "Change",
      cell: (reservation) => {
        const words = mayChange(me, reservation) ? "Use, renew, release" : "Use";
        return (
          <Button
            size="compact-xs"
            variant="default"
            aria-label={`${words}: ${reservation.holder || reservation.reservation_id}`}
            onClick={() => setOpenedId(reservation.reservation_id)}
          >
            {words}
          </Button>
        );
      },
    },
  ];
  return (
    <>
      <DataTable
        label="Reservations"
        columns={columns}
        rows={reservations}
        rowKey={(reservation) => reservation.reservation_id}
      />
      {opened && <ReservationDialog of={opened} onClose={() => setOpenedId("")} />}
    </>
  );
}
