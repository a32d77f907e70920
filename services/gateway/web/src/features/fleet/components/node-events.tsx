import { t } from "@lingui/core/macro";
import { useInfiniteQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import type { GpuView, NodeView } from "@schemas/messages";
import { EventList } from "@/components/event-list";
import { Loaded } from "@/components/page";
import { nodeEventsOptions } from "../api/get-node-events";

/** Health, drift and what operators did, newest first. */
export function NodeEvents({ node, gpus }: { node: NodeView; gpus: GpuView[] }) {
  const query = useInfiniteQuery(nodeEventsOptions(node.node_id));
  const names = useMemo(() => {
    const byUuid = new Map(gpus.map((gpu) => [gpu.uuid, t`GPU ${gpu.index}`]));
    return {
      gpu: (_: string, uuid: string) => byUuid.get(uuid) ?? t`GPU …${uuid.slice(-8)}`,
      experiment: (id: string) => t`experiment …${id.slice(-8)}`,
    };
  }, [gpus]);
  return (
    <Loaded query={query}>
      {({ pages }) => (
        <EventList
          events={pages.flatMap(({ events }) => events)}
          names={names}
          empty={t`Nothing has happened on this node yet.`}
          older={
            query.hasNextPage
              ? { isLoading: query.isFetchingNextPage, load: () => void query.fetchNextPage() }
              : undefined
          }
        />
      )}
    </Loaded>
  );
}
