import { useQuery } from "@tanstack/react-query";
import type { ReservationView } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { Holder } from "@/components/holder";
import { Loaded } from "@/components/page";
import { duration, moment } from "@/lib/time";
import { UNKNOWN } from "@/lib/units";
import { pastHoldersOptions } from "../api/get-past-holders";

const SHOWN = 20;
const AN_ID = / [0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/;

const durationOf = ({ granted_at: from, ended_at: to }: ReservationView) =>
  from && to ? (Date.parse(to) - Date.parse(from)) / 1000 : null;

const COLUMNS: Column<ReservationView>[] = [
  {
    name: "Holder",
    sortBy: (reservation) => reservation.holder,
    cell: (reservation) => <Holder of={reservation.holder} />,
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
  { name: "GPUs", isNumber: true, cell: (reservation) => reservation.devices.length },
  {
    name: "From",
    isNumber: true,
    sortBy: (reservation) => reservation.granted_at,
    cell: (reservation) => moment(reservation.granted_at),
  },
  {
    name: "To",
    isNumber: true,
    sortBy: (reservation) => reservation.ended_at,
    cell: (reservation) => moment(reservation.ended_at),
  },
  {
    name: "Lasted",
    isNumber: true,
    sortBy: durationOf,
    cell: (reservation) => duration(durationOf(reservation)),
  },
  {
    name: "Ended",
    cell: (reservation) =>
      [reservation.state, reservation.reason.replace(AN_ID, "")].filter(Boolean).join(": "),
  },
];

/** Who had this GPU before: what ran when it got hot, or lost its reading. */
export function PastHolders({ nodeId, uuid }: { nodeId: string; uuid: string }) {
  const past = useQuery(pastHoldersOptions(nodeId));
  return (
    <section>
      <h2>Past holders</h2>
      <Loaded query={past}>
        {(all) => {
          const reservations = all.filter(
            (reservation) =>
              reservation.granted_at && reservation.devices.some((device) => device.uuid === uuid),
          );
          if (reservations.length === 0)
            return <p className="dim">No recent reservation of this node held this GPU.</p>;
          return (
            <>
              <DataTable
                label="Past holders"
                columns={COLUMNS}
                rows={reservations.slice(0, SHOWN)}
                rowKey={(reservation) => reservation.reservation_id}
              />
              {reservations.length > SHOWN && (
                <p className="dim">{reservations.length - SHOWN} older ones are not shown.</p>
              )}
            </>
          );
        }}
      </Loaded>
    </section>
  );
}
