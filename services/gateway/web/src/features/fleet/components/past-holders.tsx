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

const lasted = ({ granted_at: from, ended_at: to }: ReservationView) =>
  from && to ? (Date.parse(to) - Date.parse(from)) / 1000 : null;

const COLUMNS: Column<ReservationView>[] = [
  { name: "Holder", sortBy: (each) => each.holder, cell: (each) => <Holder of={each.holder} /> },
  { name: "Requested by", sortBy: (each) => each.requester, cell: (each) => each.requester || UNKNOWN },
  { name: "Namespace", sortBy: (each) => each.namespace, cell: (each) => each.namespace },
  { name: "GPUs", isNumber: true, cell: (each) => each.devices.length },
  { name: "From", isNumber: true, sortBy: (each) => each.granted_at, cell: (each) => moment(each.granted_at) },
  { name: "To", isNumber: true, sortBy: (each) => each.ended_at, cell: (each) => moment(each.ended_at) },
  { name: "Lasted", isNumber: true, sortBy: lasted, cell: (each) => duration(lasted(each)) },
  { name: "Ended", cell: (each) => [each.state, each.reason.replace(AN_ID, "")].filter(Boolean).join(": ") },
];

/** Who had this GPU before: what ran when it got hot, or lost its reading. */
export function PastHolders({ nodeId, uuid }: { nodeId: string; uuid: string }) {
  const past = useQuery(pastHoldersOptions(nodeId));
  return (
    <section>
      <h2>Earlier holders</h2>
      <Loaded query={past}>
        {(all) => {
          const its = all.filter((each) => each.granted_at && each.devices.some((device) => device.uuid === uuid));
          if (its.length === 0) return <p className="dim">None of the last that held GPUs of this node.</p>;
          return (
            <>
              <DataTable label="Earlier holders" columns={COLUMNS} rows={its.slice(0, SHOWN)} rowKey={(each) => each.reservation_id} />
              {its.length > SHOWN && <p className="dim">{its.length - SHOWN} earlier ones are left out.</p>}
            </>
          );
        }}
      </Loaded>
    </section>
  );
}
