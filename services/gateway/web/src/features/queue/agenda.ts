import type { ReservationView } from "@schemas/messages";
import { holderOf } from "@/domain/holder";

export interface AgendaEntry {
  key: string;
  at: string;
  kind: "starts" | "ends";
  name: string;
  requester: string;
  namespace: string;
  gpus: number;
}

interface Start {
  of: ReservationView;
  at: string | null | undefined;
}

/** What is expected to start and to end, the next first; what says no time is left out. */
export function agendaOf(
  holding: Iterable<ReservationView>,
  starts: Start[],
  nowMs: number,
): AgendaEntry[] {
  const ends = [...holding].flatMap((of) => {
    const at = expectedEnd(of);
    return at !== null && at > nowMs ? [entryOf(of, new Date(at).toISOString(), "ends")] : [];
  });
  const expected = starts.flatMap(({ of, at }) => (at ? [entryOf(of, at, "starts")] : []));
  return [...ends, ...expected].toSorted((a, b) => Date.parse(a.at) - Date.parse(b.at));
}

function expectedEnd({ granted_at: at, request }: ReservationView): number | null {
  const seconds = request.expected_duration_seconds;
  return at && seconds ? Date.parse(at) + seconds * 1000 : null;
}

function entryOf(of: ReservationView, at: string, kind: AgendaEntry["kind"]): AgendaEntry {
  const { gpus = 1, nodes = 1, shares } = of.request;
  return {
    key: `${kind} ${of.reservation_id}`,
    at,
    kind,
    name: holderOf(of.holder).name || `…${of.reservation_id.slice(-8)}`,
    requester: of.requester,
    namespace: of.namespace,
    gpus: shares ?? (of.devices.length || gpus * nodes),
  };
}

/** By the day in the viewer's zone, in their order. */
export function dayKey(at: string): string {
  return new Date(at).toDateString();
}
