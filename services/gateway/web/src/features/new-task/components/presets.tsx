import { Button, TextInput } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import type { ExistingPreset, Preset } from "@schemas/messages";
import { ApiError } from "@/lib/api-client";
import { useMe } from "@/lib/session";
import { useNamespace } from "@/lib/url-state";
import { presetsOptions, savePreset } from "../api/presets";
import { valueAt, withValue } from "../draft";
import classes from "./draft-form.module.css";
import { Choice, errorOf, type FormProps } from "./fields";
import { Picks } from "./picks";

const MERGES = ["last_wins", "union", "intersection"];
const MOST_PRESETS = 16;

/** Saved parameters that the task takes; its own go first. */
export function Presets(props: FormProps) {
  const { draft, onChange } = props;
  const [namespace] = useNamespace();
  const known = useQuery(presetsOptions(namespace)).data ?? [];
  const engine = valueAt(draft, "base_runtime");
  const found = valueAt(draft, "presets");
  const chosen = Array.isArray(found) ? found.map(String) : [];
  const options = known
    .filter((each) => !each.engine || each.engine === engine)
    .map(({ name, description, namespace: of }) => ({
      value: name,
      label: [name, of === null ? "of the release" : "", description ?? ""].filter(Boolean).join(" · "),
    }));
  const set = (names: string[]) => {
    const named = withValue(draft, "presets", names.length > 0 ? names : undefined);
    onChange(names.length > 1 ? named : withValue(named, "preset_merge", undefined));
  };
  return (
    <>
      <Picks
        label="Presets"
        placeholder={options.length > 0 ? "take parameters that were saved" : "none is saved for this engine"}
        options={options}
        chosen={chosen}
        most={MOST_PRESETS}
        error={errorOf({ ...props, path: "presets" })}
        onChange={set}
      />
      {chosen.length > 1 && <Choice {...props} path="preset_merge" label="A parameter that several give" options={MERGES} />}
      <SavePreset {...props} namespace={namespace} />
    </>
  );
}

function SavePreset({ draft, namespace }: FormProps & { namespace: string }) {
  const client = useQueryClient();
  const mayNot = useMe()?.role === "viewer";
  const [name, setName] = useState("");
  const parameters = (valueAt(draft, "parameters") ?? {}) as Preset["parameters"];
  const save = useMutation({
    mutationFn: (existing: ExistingPreset) =>
      savePreset({ name: name.trim(), engine: String(valueAt(draft, "base_runtime") ?? "") || null, parameters }, existing, namespace),
    onSuccess: () => client.invalidateQueries({ queryKey: ["presets"] }),
  });
  const isThere = save.error instanceof ApiError && save.error.problem.code === "conflict";
  return (
    <div className={classes.parameter}>
      <TextInput
        size="xs"
        label="Save them as a preset"
        placeholder="its name"
        value={name}
        disabled={mayNot}
        error={save.error?.message}
        description={save.isSuccess ? "Saved." : undefined}
        inputWrapperOrder={["label", "input", "description", "error"]}
        onChange={(event) => {
          setName(event.currentTarget.value);
          save.reset();
        }}
      />
      <Button
        size="xs"
        variant="default"
        disabled={mayNot || !name.trim() || Object.keys(parameters).length === 0}
        loading={save.isPending}
        onClick={() => save.mutate(isThere ? "replace" : "refuse")}
      >
        {isThere ? "Replace it" : "Save"}
      </Button>
    </div>
  );
}
