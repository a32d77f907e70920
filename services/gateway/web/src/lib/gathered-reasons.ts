import type { Reason } from "@schemas/messages";
import { groupBy } from "@/lib/group-by";

const OF_ONE_GPU = /^GPU (\d+) on \S+ (.*)$/;

/** Nodes that are not granted for the same reasons, by name, with these reasons. */
export function byNodes(reasons: Reason[]): { nodes: string; sentences: { message: string; title: string }[] }[] {
  const ofNodes = [...groupBy(reasons, ({ node_id }) => node_id ?? "everywhere")].map(([node, its]) => ({
    node,
    sentences: gathered(its),
  }));
  const alike = groupBy(ofNodes, ({ node, sentences }) =>
    JSON.stringify(sentences.map(({ message }) => message.replaceAll(`${node} `, ""))),
  );
  return [...alike.values()].map((its) => ({
    nodes: its.map(({ node }) => node).join(", "),
    sentences: (its[0]?.sentences ?? []).map(({ message, title }) => ({
      message: its.length > 1 ? message.replaceAll(`${its[0]?.node} `, "each ") : message,
      title: its.length > 1 ? "" : title,
    })),
  }));
}

/** One sentence for all GPUs of a node that are not granted for the same reason. */
function gathered(reasons: Reason[]): { message: string; title: string }[] {
  const alike = groupBy(reasons, ({ message }) => OF_ONE_GPU.exec(message)?.[2] ?? message);
  return [...alike].map(([rest, its]) => {
    const indices = its.flatMap(({ message }) => OF_ONE_GPU.exec(message)?.[1] ?? []);
    const uuids = its.flatMap((reason) => reason.device_uuid ?? []);
    const what = indices.length > 1 ? `GPUs ${indices.join(", ")}: each ` : indices.length === 1 ? `GPU ${indices[0]} ` : "";
    return { message: what + rest, title: uuids.join(", ") };
  });
}
