import { t } from "@lingui/core/macro";
import { Button, NativeSelect } from "@mantine/core";
import classes from "./draft-form.module.css";

interface PicksProps {
  label: string;
  /** Of the first choice, which takes nothing. */
  placeholder: string;
  options: { value: string; label: string }[];
  chosen: string[];
  most: number;
  error: string | null;
  onChange: (chosen: string[]) => void;
}

/** Several of a list, in the order in which they were taken. */
export function Picks({ label, placeholder, options, chosen, most, error, onChange }: PicksProps) {
  const remaining = options.filter(({ value }) => !chosen.includes(value));
  return (
    <div>
      <NativeSelect
        size="xs"
        label={label}
        data={[{ value: "", label: placeholder }, ...remaining]}
        value=""
        error={error}
        disabled={remaining.length === 0 || chosen.length >= most}
        onChange={({ currentTarget: { value } }) => value && onChange([...chosen, value])}
      />
      {chosen.length > 0 && (
        <div className={classes.picked}>
          {chosen.map((name) => (
            <Button
              key={name}
              size="compact-xs"
              variant="default"
              aria-label={t`remove ${name}`}
              onClick={() => onChange(chosen.filter((other) => other !== name))}
            >
              {name} ×
            </Button>
          ))}
        </div>
      )}
    </div>
  );
}
