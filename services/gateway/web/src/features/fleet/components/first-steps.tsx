import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import type { ReactNode } from "react";
import { Link } from "react-router";
import type { NodeView } from "@schemas/messages";
import { CopyText } from "@/components/copy-text";
import { InviteServer } from "@/components/nodes/invite-server";
import { NodeMark } from "@/components/nodes/node-mark";
import { StateMark } from "@/components/state-mark";
import { paths } from "@/lib/paths";
import classes from "./first-steps.module.css";

/** What leads from an empty platform to a first result, with what is done already. */
export function FirstSteps({ nodes }: { nodes: NodeView[] }) {
  const hasServer = nodes.some(({ gpus_total: gpus }) => gpus > 0);
  const waiting = nodes.filter(({ admitted }) => !admitted);
  return (
    <section className={classes.steps} aria-label={t`First steps`}>
      <h2>{t`No GPUs yet`}</h2>
      <ol>
        <Step isDone={hasServer} title={t`Add a server with GPUs`}>
          <p>
            <Trans>
              The button makes a command to run on the server; it installs the agent and joins.
            </Trans>
          </p>
          <InviteServer />
          {nodes.map((node) => (
            <p key={node.node_id}>
              <Link to={paths.node(node.node_id)}>{node.node_id}</Link>{" "}
              <NodeMark node={node} isAlways />{" "}
              {node.gpus_total === 0 && (
                <span className="dim">
                  <Trans>reports no GPU</Trans>
                </span>
              )}
            </p>
          ))}
          <p className="dim">
            <Trans>Does this host have a GPU that is not shown? This says why:</Trans>
          </p>
          <CopyText text="gpusteward doctor" label={t`the command that checks this host`} />
        </Step>
        <Step isDone={hasServer && waiting.length === 0} title={t`Admit it`}>
          <p>
            <Trans>A new server waits until an admin admits it on its page.</Trans>
          </p>
        </Step>
        <Step isDone={false} title={t`Run the demo`}>
          <p>
            <Trans>Without any GPU, a simulated fleet shows all of this:</Trans>
          </p>
          <CopyText text="gpusteward up --simulate" label={t`the command that simulates a fleet`} />
          <CopyText text="gpusteward demo" label={t`the command that runs the demo`} />
        </Step>
        <Step isDone={false} title={t`Invite people`}>
          <p>
            <Trans>
              Create a token for each under <Link to={`${paths.admin()}?tab=tokens`}>Admin</Link>.
            </Trans>
          </p>
        </Step>
      </ol>
    </section>
  );
}

interface StepProps {
  isDone: boolean;
  title: string;
  children: ReactNode;
}

function Step({ isDone, title, children }: StepProps) {
  return (
    <li>
      <strong>{title}</strong> {isDone && <StateMark kind="ok" word={t`done`} />}
      {children}
    </li>
  );
}
