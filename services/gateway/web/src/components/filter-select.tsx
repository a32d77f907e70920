import { Select, type SelectProps } from "@mantine/core";

interface FilterSelectProps extends Omit<SelectProps, "value" | "onChange" | "placeholder"> {
  /** What is shown while nothing is chosen, such as "All nodes". */
  all: string;
  /** Empty while nothing is chosen. */
  value: string;
  onChange: (value: string) => void;
}

/** One of some values, or all of them. */
export function FilterSelect({ all, value, onChange, ...others }: FilterSelectProps) {
  return (
    <Select
      size="xs"
      placeholder={all}
      clearable
      value={value || null}
      onChange={(option) => onChange(option ?? "")}
      {...others}
    />
  );
}
