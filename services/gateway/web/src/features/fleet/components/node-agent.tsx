import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQuery } from "@tanstack/react-query";
import type { NodeView } from "@schemas/messages";
import { CopyText } from "@/components/copy-text";
import { Facts } from "@/components/facts";
import { Loaded } from "@/components/page";
import { StateMark } from "@/components/state-mark";
import { duration } from "@/lib/time";
import { UNKNOWN } from "@/lib/units";
import { agentOptions } from "../api/get-agent";

/** What the agent says itself, what can run there, and where its log is. */
export function NodeAgent({ node }: { node: NodeView }) {
  const agent = useQuery(agentOptions(node.node_id));
  return (
    <>
      <Loaded query={agent}>
        {({ available, message, source, gpu_count, sequence, interval_seconds }) => (
          <Facts
            facts={[
              [
                t`state`,
                <StateMark
                  key="state"
                  kind={available ? "ok" : "bad"}
                  word={available ? t`reads its GPUs` : t`cannot read its GPUs`}
                />,
              ],
              [t`message`, message || UNKNOWN],
              [t`source of readings`, source],
              ["GPUs", gpu_count],
              [t`a reading each`, duration(interval_seconds)],
              [t`readings since its start`, sequence],
            ]}
          />
        )}
      </Loaded>
      <h2>
        <Trans>What can run here</Trans>
      </h2>
      {node.runtimes.length === 0 ? (
        <p className="dim">
          <Trans>No executor runs on this node: it gives readings and reservations.</Trans>
        </p>
      ) : (
        <ul>
          {node.runtimes.map(({ runtime, version, engines, missing }) => (
            <li key={runtime}>
              <strong>{runtime}</strong>
              {version && ` ${version}`}: {engines.length > 0 ? engines.join(", ") : t`no engine`}
              {Object.entries(missing).map(([name, reason]) => (
                <div key={name} className="dim">
                  {name}: {reason}
                </div>
              ))}
            </li>
          ))}
        </ul>
      )}
      <h2>
        <Trans>Its log</Trans>
      </h2>
      <p>
        <Trans>The agent writes its log on the node; the platform keeps no copy.</Trans>
      </p>
      <CopyText
        text="journalctl -u gpusteward-agent -f"
        label={t`the command that follows the agent's log`}
      />
    </>
  );
}
