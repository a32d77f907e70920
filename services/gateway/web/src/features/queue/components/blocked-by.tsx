import { t } from "@lingui/core/macro";
import type { Reason, ReservationView } from "@schemas/messages";
import { blockersOf } from "@/domain/blockers";
import { heldUntil } from "@/domain/held-until";
import { UNKNOWN } from "@/lib/units";

const SHOWN = 2;

interface BlockedByProps {
  reasons: Reason[];
  holding: ReadonlyMap<string, ReservationView> | undefined;
  now: number;
}

/** Who holds the GPUs that it waits for, and until when. */
export function BlockedBy({ reasons, holding, now }: BlockedByProps) {
  const blockers = blockersOf(reasons, holding?.values() ?? []);
  if (blockers.length === 0) return <span className="dim">{UNKNOWN}</span>;
  const texts = blockers.slice(0, SHOWN).map(({ name, gpus, reservation }) => {
    const until = heldUntil(reservation, now);
    return `${name} (${gpus === 1 ? t`1 GPU` : t`${gpus} GPUs`}${until ? `, ${until}` : ""})`;
  });
  const more = blockers.length - SHOWN;
  return <>{[...texts, ...(more > 0 ? [t`${more} more`] : [])].join(", ")}</>;
}
