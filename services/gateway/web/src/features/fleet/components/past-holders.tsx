import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
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

export const PAST_COLUMNS: Column<ReservationView>[] = [
  {
    name: t`Holder`,
    sortBy: (reservation) => reservation.holder,
    cell: (reservation) => <Holder of={reservation.holder} />,
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
  { name: "GPUs", isNumber: true, cell: (reservation) => reservation.devices.length },
  {
    name: t`From`,
    isNumber: true,
    sortBy: (reservation) => reservation.granted_at,
    cell: (reservation) => moment(reservation.granted_at),
  },
  {
    name: t`To`,
    isNumber: true,
    sortBy: (reservation) => reservation.ended_at,
    cell: (reservation) => moment(reservation.ended_at),
  },
  {
    name: t`Lasted`,
    isNumber: true,
    sortBy: durationOf,
    cell: (reservation) => duration(durationOf(reservation)),
  },
  {
    name: t`Ended`,
    cell: (reservation) =>
      [reservation.state, reservation.reason.replace(AN_ID, "")].filter(Boolean).join(": "),
  },
];

/** Who had this GPU before: what ran when it got hot, or lost its reading. */
export function PastHolders({ nodeId, uuid }: { nodeId: string; uuid: string }) {
  const past = useQuery(pastHoldersOptions(nodeId));
  return (
    <section>
      <h2>
        <Trans>Past holders</Trans>
      </h2>
      <Loaded query={past}>
        {(all) => {
          const reservations = all.filter(
            (reservation) =>
              reservation.granted_at && reservation.devices.some((device) => device.uuid === uuid),
          );
          if (reservations.length === 0)
            return (
              <p className="dim">
                <Trans>No recent reservation of this node held this GPU.</Trans>
              </p>
            );
          return (
            <>
              <DataTable
                label={t`Past holders`}
                columns={PAST_COLUMNS}
                rows={reservations.slice(0, SHOWN)}
                rowKey={(reservation) => reservation.reservation_id}
              />
              {reservations.length > SHOWN && (
                <p className="dim">
                  <Trans>{reservations.length - SHOWN} older ones are not shown.</Trans>
                </p>
              )}
            </>
          );
        }}
      </Loaded>
    </section>
  );
}
