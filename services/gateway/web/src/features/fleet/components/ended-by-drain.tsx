import { useQuery } from "@tanstack/react-query";
import { holderOf } from "@/domain/holder";
import { Loaded } from "@/components/page";
import { holdingOptions } from "@/lib/api/get-holding";

/** Whose reservations a drain of the node ends. */
export function EndedByDrain({ nodeId }: { nodeId: string }) {
  const holding = useQuery(holdingOptions);
  return (
    <Loaded query={holding}>
      {(reservations) => {
        const ended = [...reservations.values()].filter(({ devices }) =>
          devices.some((device) => device.node_id === nodeId),
        );
        if (ended.length === 0) return <p>Nothing is reserved on this node: nothing ends.</p>;
        const gpus = ended.reduce((sum, { devices }) => sum + devices.length, 0);
        return (
          <>
            <p>
              <strong>
                This ends {ended.length === 1 ? "1 reservation" : `${ended.length} reservations`} of{" "}
                {gpus === 1 ? "1 GPU" : `${gpus} GPUs`}:
              </strong>
            </p>
            <ul>
              {ended.map(({ reservation_id: id, holder, namespace, requester, devices }) => (
                <li key={id}>
                  {holderOf(holder).name || id.slice(-12)} ({namespace}
                  {requester && `, ${requester}`}): {devices.length}{" "}
                  {devices.length === 1 ? "GPU" : "GPUs"}
                </li>
              ))}
            </ul>
          </>
        );
      }}
    </Loaded>
  );
}
