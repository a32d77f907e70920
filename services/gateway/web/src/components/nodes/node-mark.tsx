import { t } from "@lingui/core/macro";
import type { NodeView } from "@schemas/messages";
import { StateMark } from "@/components/state-mark";

/** What is wrong with a node as a whole; `isAlways` says also that nothing is. */
export function NodeMark({ node, isAlways }: { node: NodeView | undefined; isAlways?: boolean }) {
  if (!node) return null;
  if (!node.admitted) return <StateMark kind="attention" word={t`waiting for admission`} />;
  if (!node.fresh) return <StateMark kind="bad" word={t`silent`} title={t`no readings received`} />;
  if (node.cordon) {
    return (
      <StateMark
        kind="attention"
        word={t`cordoned`}
        title={node.cordon.reason || node.cordon.until}
      />
    );
  }
  return isAlways ? <StateMark kind="ok" word={t`in service`} /> : null;
}
