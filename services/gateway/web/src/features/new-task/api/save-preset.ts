import { t } from "@lingui/core/macro";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import type { ExistingPreset, Preset } from "@schemas/messages";
import { api } from "@/lib/api-client";
import { showToast } from "@/lib/toasts";
import { aboutTopic } from "@/lib/topics";

interface NewPreset {
  preset: Preset;
  existing: ExistingPreset;
}

export function useSavePreset(namespace: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ preset, existing }: NewPreset) =>
      api(endpoints.savePresets, {
        query: { existing, namespace: namespace || null },
        body: { presets: [preset] },
      }),
    onSuccess: (_, { preset: { name } }) => {
      showToast({ text: t`Saved: preset ${name}` });
      return client.invalidateQueries(aboutTopic("presets"));
    },
  });
}
