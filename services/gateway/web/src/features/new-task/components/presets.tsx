import { t } from "@lingui/core/macro";
import { Button, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { type Preset, PresetMerge } from "@schemas/messages";
import { ApiError } from "@/lib/api-client";
import { useMe } from "@/lib/api/get-me";
import { useNamespace } from "@/lib/url-state";
import { presetsOptions } from "../api/get-presets";
import { useSavePreset } from "../api/save-preset";
import { textAt, valueAt, withValue } from "../draft";
import classes from "./draft-form.module.css";
import { Choice, errorOf, type FormProps } from "./fields";
import { Picks } from "./picks";

const MOST_PRESETS = 16;

/** Saved parameters that the task takes; its own go first. */
export function Presets(props: FormProps) {
  const { draft, onChange } = props;
  const [namespace] = useNamespace();
  const presets = useQuery(presetsOptions(namespace)).data ?? [];
  const engine = valueAt(draft, "base_runtime");
  const value = valueAt(draft, "presets");
  const chosen = Array.isArray(value) ? value.map(String) : [];
  const options = presets
    .filter((preset) => !preset.engine || preset.engine === engine)
    .map(({ name, description, namespace: of }) => ({
      value: name,
      label: [name, of === null ? t`built in` : "", description].filter(Boolean).join(" · "),
    }));
  const set = (names: string[]) => {
    const named = withValue(draft, "presets", names.length > 0 ? names : undefined);
    onChange(names.length > 1 ? named : withValue(named, "preset_merge", undefined));
  };
  return (
    <>
      <Picks
        label={t`Presets`}
        placeholder={options.length > 0 ? t`add saved parameters` : t`no presets for this engine`}
        options={options}
        chosen={chosen}
        most={MOST_PRESETS}
        error={errorOf({ ...props, path: "presets" })}
        onChange={set}
      />
      {chosen.length > 1 && (
        <Choice
          {...props}
          path="preset_merge"
          label={t`If presets conflict`}
          options={PresetMerge}
        />
      )}
      <SavePreset {...props} namespace={namespace} />
    </>
  );
}

function SavePreset({ draft, namespace }: FormProps & { namespace: string }) {
  const mayNot = useMe()?.role === "viewer";
  const [name, setName] = useState("");
  const parameters = (valueAt(draft, "parameters") ?? {}) as Preset["parameters"];
  const save = useSavePreset(namespace);
  const isThere = save.error instanceof ApiError && save.error.problem.code === "conflict";
  return (
    <div className={classes.parameter}>
      <TextInput
        size="xs"
        label={t`Save parameters as a preset`}
        placeholder={t`name`}
        value={name}
        disabled={mayNot}
        error={save.error?.message}
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
        onClick={() =>
          save.mutate({
            preset: {
              name: name.trim(),
              engine: textAt(draft, "base_runtime") || null,
              parameters,
            },
            existing: isThere ? "replace" : "refuse",
          })
        }
      >
        {isThere ? t`Replace` : t`Save`}
      </Button>
    </div>
  );
}
