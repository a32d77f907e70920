import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQuery } from "@tanstack/react-query";
import { holderOf } from "@/domain/holder";
import { Loaded } from "@/components/page";
import { holdingOptions } from "@/lib/api/get-holding";

/** Whose reservations end where a node is drained or removed. */
export function HeldOnNode({ nodeId }: { nodeId: string }) {
  const holding = useQuery(holdingOptions);
  return (
    <Loaded query={holding}>
      {(reservations) => {
        const ended = [...reservations.values()].filter(({ devices }) =>
          devices.some((device) => device.node_id === nodeId),
        );
        if (ended.length === 0)
          return (
            <p>
              <Trans>Nothing is reserved on this node: nothing ends.</Trans>
            </p>
          );
        const gpus = ended.reduce((sum, { devices }) => sum + devices.length, 0);
        const count = gpus === 1 ? t`1 GPU` : t`${gpus} GPUs`;
        return (
          <>
            <p>
              <strong>
                {ended.length === 1
                  ? t`This ends 1 reservation of ${count}:`
                  : t`This ends ${ended.length} reservations of ${count}:`}
              </strong>
            </p>
            <ul>
              {ended.map(({ reservation_id: id, holder, namespace, requester, devices }) => (
                <li key={id}>
                  {holderOf(holder).name || id.slice(-12)} ({namespace}
                  {requester && `, ${requester}`}):{" "}
                  {devices.length === 1 ? t`1 GPU` : t`${devices.length} GPUs`}
                </li>
              ))}
            </ul>
          </>
        );
      }}
    </Loaded>
  );
}
