import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button, Checkbox, Popover } from "@mantine/core";
import { useUrlState } from "@/lib/url-state";
import classes from "./experiments-table.module.css";

/** Names of columns that somebody hid; part of the address. */
export function useHiddenColumns() {
  const [text, setText] = useUrlState("hide", "");
  const hidden = text ? text.split(",") : [];
  const toggle = (name: string) =>
    setText(
      (hidden.includes(name) ? hidden.filter((other) => other !== name) : [...hidden, name]).join(
        ",",
      ),
    );
  return { hidden, toggle, showAll: () => setText("") };
}

interface ColumnPickerProps {
  names: string[];
  hidden: string[];
  toggle: (name: string) => void;
  showAll: () => void;
}

export function ColumnPicker({ names, hidden, toggle, showAll }: ColumnPickerProps) {
  return (
    <Popover position="bottom-end" trapFocus returnFocus>
      <Popover.Target>
        <Button size="xs" variant="default">
          {hidden.length > 0 ? t`Columns (${hidden.length} hidden)` : t`Columns`}
        </Button>
      </Popover.Target>
      <Popover.Dropdown aria-label={t`Columns`}>
        <div className={classes.columns}>
          {names.map((name) => (
            <Checkbox
              key={name}
              size="xs"
              label={name}
              checked={!hidden.includes(name)}
              onChange={() => toggle(name)}
            />
          ))}
          <Button size="compact-xs" variant="default" onClick={showAll}>
            <Trans>Show all</Trans>
          </Button>
        </div>
      </Popover.Dropdown>
    </Popover>
  );
}
