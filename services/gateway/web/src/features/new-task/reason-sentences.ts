import { t } from "@lingui/core/macro";
import type { AvailabilityView, Reason } from "@schemas/messages";
import { groupBy } from "@/lib/group-by";

/** What would have to be otherwise in the request; waiting does not help there. */
const BY_REQUEST = /_mismatch$|^given_out_by_cluster$/;

/** One sentence for each kind of reason, with how many more there are of it; what passes comes first. */
export function reasonSentences({
  reasons,
  reasons_left_out: leftOut,
}: Pick<AvailabilityView, "reasons" | "reasons_left_out">): string[] {
  const alike = [...groupBy(reasons, ({ code }) => code)].map(([code, group]) => ({
    code,
    first: group[0] as Reason,
    more: group.length - 1 + (leftOut[code] ?? 0),
  }));
  const inOrder = [false, true].flatMap((isByRequest) =>
    alike.filter(({ code }) => BY_REQUEST.test(code) === isByRequest),
  );
  return inOrder.map(
    ({ first, more }) =>
      first.message +
      (more > 0 ? t`, and ${more} more ${noun(first, more)} with the same reason` : ""),
  );
}

function noun({ device_uuid: uuid, node_id: node }: Reason, count: number): string {
  const of = uuid ? "GPU" : node ? "node" : "reason";
  return count === 1 ? of : `${of}s`;
}
