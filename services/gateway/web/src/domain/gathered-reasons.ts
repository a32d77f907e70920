import { t } from "@lingui/core/macro";
import type { Reason } from "@schemas/messages";
import { groupBy } from "@/lib/group-by";

const OF_ONE_GPU = /^GPU (\d+) on \S+ (.*)$/;

/** Nodes that are not granted for the same reasons, by name, with these reasons. */
export function byNodes(
  reasons: Reason[],
): { nodes: string; sentences: { message: string; title: string }[] }[] {
  const ofNodes = [...groupBy(reasons, ({ node_id }) => node_id ?? "everywhere")].map(
    ([node, reasonsOfNode]) => ({
      node,
      sentences: gatherSentences(reasonsOfNode),
    }),
  );
  const alike = groupBy(ofNodes, ({ node, sentences }) =>
    JSON.stringify(sentences.map(({ message }) => message.replaceAll(`${node} `, ""))),
  );
  return [...alike.values()].map((group) => ({
    nodes: group.map(({ node }) => node).join(", "),
    sentences: (group[0]?.sentences ?? []).map(({ message, title }) => ({
      message: group.length > 1 ? message.replaceAll(`${group[0]?.node} `, "each ") : message,
      title: group.length > 1 ? "" : title,
    })),
  }));
}

/** One sentence for all GPUs of a node that are not granted for the same reason. */
function gatherSentences(reasons: Reason[]): { message: string; title: string }[] {
  const alike = groupBy(reasons, ({ message }) => OF_ONE_GPU.exec(message)?.[2] ?? message);
  return [...alike].map(([rest, group]) => {
    const indices = group.flatMap(({ message }) => OF_ONE_GPU.exec(message)?.[1] ?? []);
    const uuids = group.flatMap((reason) => reason.device_uuid ?? []);
    const what =
      indices.length > 1
        ? t`GPUs ${indices.join(", ")}: each`
        : indices.map((index) => t`GPU ${index}`);
    return { message: [what, rest].flat().join(" "), title: uuids.join(", ") };
  });
}
