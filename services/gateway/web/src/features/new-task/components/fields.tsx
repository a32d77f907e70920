import { NativeSelect, NumberInput, TextInput } from "@mantine/core";
import { useState } from "react";
import type { Problem } from "@schemas/messages";
import { textAt, isAbout, valueAt, valuesOf, withValue, type Draft } from "../draft";

export interface FormProps {
  draft: Draft;
  problem: Problem | null;
  onChange: (draft: Draft) => void;
}

export interface FieldProps extends FormProps {
  path: string;
  label: string;
}

export function errorOf({
  problem,
  path,
}: {
  problem: Problem | null;
  path: string;
}): string | null {
  return problem && isAbout(problem.path, path) ? problem.detail : null;
}

/** With a placeholder it may be empty, and is left out of the file then. */
export function TextField({
  draft,
  problem,
  onChange,
  path,
  label,
  placeholder,
}: FieldProps & { placeholder?: string }) {
  return (
    <TextInput
      size="xs"
      label={label}
      placeholder={placeholder}
      value={textAt(draft, path)}
      error={errorOf({ problem, path })}
      onChange={(event) =>
        onChange(
          withValue(draft, path, event.currentTarget.value || (placeholder ? undefined : "")),
        )
      }
    />
  );
}

interface NumberFieldProps extends FieldProps {
  min: number;
  placeholder?: string;
  /** Where a number changes more than its field. */
  onPick?: (value: number | undefined) => void;
}

export function NumberField(props: NumberFieldProps) {
  const { draft, problem, onChange, path, label, min, placeholder } = props;
  const { onPick = (value) => onChange(withValue(draft, path, value)) } = props;
  const value = valueAt(draft, path);
  return (
    <NumberInput
      size="xs"
      label={label}
      min={min}
      placeholder={placeholder}
      value={typeof value === "number" ? value : ""}
      error={errorOf({ problem, path })}
      onChange={(entered) => onPick(typeof entered === "number" ? entered : undefined)}
    />
  );
}

interface ChoiceProps extends FieldProps {
  options: readonly string[];
  /** Where a choice changes more than its field. */
  onPick?: (value: string) => void;
}

export function Choice({ draft, problem, onChange, path, label, options, onPick }: ChoiceProps) {
  const value = valueAt(draft, path);
  return (
    <NativeSelect
      size="xs"
      label={label}
      data={typeof value === "string" && !options.includes(value) ? [value, ...options] : options}
      value={typeof value === "string" ? value : options[0]}
      error={errorOf({ problem, path })}
      onChange={({ currentTarget: { value: picked } }) =>
        onPick ? onPick(picked) : onChange(withValue(draft, path, picked))
      }
    />
  );
}

const listText = (values: unknown) =>
  Array.isArray(values)
    ? values.map((value) => (typeof value === "string" ? value : JSON.stringify(value))).join(", ")
    : "";

/** Its text stays as it is typed, with its last comma, while what it means is the file's. */
export function ListText(props: {
  label: string;
  values: unknown;
  error: string | null;
  isText?: boolean;
  description?: string;
  onChange: (values: unknown[]) => void;
}) {
  const { label, values, error, isText, description, onChange } = props;
  const separator = isText ? /\s*;\s*|\s*,\s*(?![^(]*\))/ : null;
  const read = (text: string) =>
    separator ? text.split(separator).filter(Boolean) : valuesOf(text);
  const [typed, setTyped] = useState(listText(values));
  const isOwn = JSON.stringify(read(typed)) === JSON.stringify(values ?? []);
  return (
    <TextInput
      size="xs"
      label={label}
      value={isOwn ? typed : listText(values)}
      description={description}
      inputWrapperOrder={["label", "input", "description", "error"]}
      error={error}
      onChange={(event) => {
        setTyped(event.currentTarget.value);
        onChange(read(event.currentTarget.value));
      }}
    />
  );
}

interface ListFieldProps extends FieldProps {
  isText?: boolean;
  /** Left out of the file where it is empty. */
  isOptional?: boolean;
}

export function ListField({
  draft,
  problem,
  onChange,
  path,
  label,
  isText,
  isOptional,
}: ListFieldProps) {
  return (
    <ListText
      label={label}
      values={valueAt(draft, path)}
      error={errorOf({ problem, path })}
      isText={isText}
      onChange={(values) =>
        onChange(withValue(draft, path, isOptional && values.length === 0 ? undefined : values))
      }
    />
  );
}
