import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useId, useState } from "react";
import type { EngineFlag } from "@schemas/messages";
import { enginesOptions } from "../api/get-engines";
import { valueAt, type Draft } from "../draft";
import classes from "./draft-form.module.css";

/** The flags that the draft's engine takes, by name; names are written with hyphens or underscores. */
export function useFlags(draft: Draft): Map<string, EngineFlag> {
  const engines = useQuery(enginesOptions).data ?? [];
  const engine = engines.find(({ name }) => name === valueAt(draft, "base_runtime"));
  return new Map(engine?.flags.map((flag) => [flag.name, flag]));
}

export const flagOf = (flags: Map<string, EngineFlag>, name: string) =>
  flags.get(name.trim().replace(/^--/, "").replaceAll("_", "-"));

/** "a number from 0 to 1, default 0.9. Share of the GPU's memory that the engine takes." */
export function flagText(flag: EngineFlag): string {
  const form = flag.default ? t`${flag.form}, default ${flag.default}` : flag.form;
  return flag.help ? `${form}. ${flag.help}` : `${form}.`;
}

interface FlagInputProps {
  label: string;
  draft: Draft;
  taken: string[];
  onAdd: (name: string) => void;
}

/** A name to add, completed from the engine's list, with what the list says of it. */
export function FlagInput({ label, draft, taken, onAdd }: FlagInputProps) {
  const [name, setName] = useState("");
  const list = useId();
  const flags = useFlags(draft);
  const flag = flagOf(flags, name);
  const trimmed = name.trim().replace(/^--/, "");
  const add = () => {
    onAdd(trimmed);
    setName("");
  };
  const isReady = trimmed !== "" && !taken.includes(trimmed);
  return (
    <div className={classes.parameter}>
      <TextInput
        size="xs"
        label={label}
        placeholder={t`name, as the engine spells it`}
        list={list}
        value={name}
        description={
          flag
            ? flagText(flag)
            : trimmed &&
                flags.size > 0 &&
                [...flags.keys()].every((other) => !other.includes(trimmed))
              ? t`Not on this engine's list: an operator has to allow it.`
              : undefined
        }
        inputWrapperOrder={["label", "input", "description", "error"]}
        onChange={(event) => setName(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && isReady) add();
        }}
      />
      <datalist id={list}>
        {[...flags.values()]
          .filter((offered) => !taken.includes(offered.name))
          .map((offered) => (
            <option key={offered.name} value={offered.name}>
              {offered.help || offered.form}
            </option>
          ))}
      </datalist>
      <Button size="xs" variant="default" disabled={!isReady} onClick={add}>
        <Trans>Add</Trans>
      </Button>
    </div>
  );
}
