import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import type { NodeView } from "@schemas/messages";
import { CopyText } from "@/components/copy-text";
import { zonedMoment } from "@/lib/time";
import classes from "./silent-node.module.css";

/** What to do about a node that sends no readings. */
export function SilentNode({ node, error }: { node: NodeView; error: Error | null }) {
  const since = node.last_seen_at && zonedMoment(node.last_seen_at);
  return (
    <section className={classes.note} aria-label={t`The node is silent`}>
      <p>
        <strong>
          {since ? (
            <Trans>No readings from this node since {since}.</Trans>
          ) : (
            <Trans>No readings from this node.</Trans>
          )}
        </strong>{" "}
        <Trans>Nothing new is granted here until it reports again.</Trans>
        {error && ` ${error.message}.`}
      </p>
      <ol>
        <li>
          <Trans>
            On {node.host?.hostname ?? node.node_id}, see whether the agent runs, and why it ended:
          </Trans>
          <CopyText
            text="systemctl status gpusteward-agent; journalctl -u gpusteward-agent -n 100"
            label={t`the command that shows the agent's log`}
          />
        </li>
        <li>
          <Trans>Check the driver, the connection to NATS and the credentials:</Trans>
          <CopyText text="gpusteward doctor" label={t`the command that checks the server`} />
        </li>
        <li>
          <Trans>If the server is back, start the agent:</Trans>
          <CopyText
            text="systemctl restart gpusteward-agent"
            label={t`the command that starts the agent`}
          />
        </li>
        <li>
          <Trans>If the server has left for good, remove the node above.</Trans>
        </li>
      </ol>
    </section>
  );
}
