import type { Reason } from "@schemas/messages";
import { groupBy } from "@/lib/group-by";

const OF_ONE_GPU = /^GPU (\d+) on \S+ (.*)$/;

/** One sentence for all GPUs of a node that are not granted for the same reason. */
export function gathered(reasons: Reason[]): { message: string; title: string }[] {
  const alike = groupBy(reasons, ({ message }) => OF_ONE_GPU.exec(message)?.[2] ?? message);
  return [...alike].map(([rest, its]) => {
    const indices = its.flatMap(({ message }) => OF_ONE_GPU.exec(message)?.[1] ?? []);
    const uuids = its.flatMap((reason) => reason.device_uuid ?? []);
    const what = indices.length > 1 ? `GPUs ${indices.join(", ")}: each ` : indices.length === 1 ? `GPU ${indices[0]} ` : "";
    return { message: what + rest, title: uuids.join(", ") };
  });
}
