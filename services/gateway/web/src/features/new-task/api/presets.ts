import { queryOptions } from "@tanstack/react-query";
import type { ExistingPreset, Preset, PresetView } from "@schemas/messages";
import { allOf, api } from "@/lib/api-client";

/** A namespace's own, after them those of the release. */
export const presetsOptions = (namespace: string) =>
  queryOptions({
    queryKey: ["presets", namespace],
    queryFn: ({ signal }) =>
      allOf<"presets", PresetView>("/presets", "presets", { query: { namespace: namespace || null }, signal }),
  });

export function savePreset(preset: Preset, existing: ExistingPreset, namespace: string): Promise<unknown> {
  const query = { existing, namespace: namespace || null };
  return api("/presets", { method: "POST", query, body: { presets: [preset] } });
}
