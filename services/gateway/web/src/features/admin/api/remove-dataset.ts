import { t } from "@lingui/core/macro";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import type { DatasetView } from "@schemas/messages";
import { api, unlessGone } from "@/lib/api-client";
import { showToast } from "@/lib/toasts";
import { aboutTopic } from "@/lib/topics";

/** With `force` also one that unfinished tasks use. */
export function useRemoveDataset() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ dataset, force }: { dataset: DatasetView; force: boolean }) =>
      unlessGone(
        api(endpoints.removeDataset, {
          place: { dataset_name: dataset.name },
          query: { namespace: dataset.namespace, force },
        }),
      ),
    onSuccess: (_, { dataset: { name } }) => {
      showToast({ text: t`Removed: dataset ${name}` });
      return client.invalidateQueries(aboutTopic("datasets"));
    },
  });
}
