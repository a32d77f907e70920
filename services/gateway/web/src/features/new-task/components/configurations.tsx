import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button, TextInput } from "@mantine/core";
import { useState } from "react";
import { valueText } from "@/domain/parameters";
import { valuesOf } from "../draft";
import {
  rowNames,
  rowsOf,
  withCell,
  withName,
  withoutName,
  withRowAdded,
  withRows,
} from "../engine-draft";
import classes from "./configurations.module.css";
import { errorOf, type FormProps } from "./fields";
import { FlagInput } from "./flag-input";

/** Values that go together: each row is one configuration, tried with every value of the parameters. */
export function Configurations(props: FormProps) {
  const { draft, onChange } = props;
  const rows = rowsOf(draft);
  const names = rowNames(rows);
  const set = (changed: typeof rows) => onChange(withRows(draft, changed));
  const error = errorOf({ ...props, path: "configurations" });
  return (
    <section className={classes.whole} aria-label={t`List of configurations`}>
      <h3 className={classes.title}>
        <Trans>List of configurations</Trans>
      </h3>
      <p className="dim">
        <Trans>
          Values that go together. Each row is tried with every value of the parameters above.
        </Trans>
      </p>
      {rows.length > 0 && (
        <div className={classes.scroll} tabIndex={0} role="region" aria-label={t`Rows`}>
          <table className={classes.rows}>
            <thead>
              <tr>
                {names.map((name) => (
                  <th key={name} scope="col">
                    {name}{" "}
                    <Button
                      size="compact-xs"
                      variant="subtle"
                      aria-label={t`remove ${name} from the list`}
                      onClick={() => set(withoutName(rows, name))}
                    >
                      ×
                    </Button>
                  </th>
                ))}
                <th />
              </tr>
            </thead>
            <tbody>
              {rows.map((row, index) => (
                <tr key={index}>
                  {names.map((name) => (
                    <td key={name}>
                      <Cell
                        label={t`${name} of row ${index + 1}`}
                        value={row[name]}
                        onChange={(value) => set(withCell(rows, index, name, value))}
                      />
                    </td>
                  ))}
                  <td>
                    <Button
                      size="xs"
                      variant="default"
                      aria-label={t`remove row ${index + 1}`}
                      onClick={() => set(rows.filter((_, at) => at !== index))}
                    >
                      <Trans>Remove</Trans>
                    </Button>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {error && (
        <p role="alert" className={classes.error}>
          {error}
        </p>
      )}
      {names.length > 0 && (
        <Button size="xs" variant="default" onClick={() => set(withRowAdded(rows))}>
          <Trans>Add a configuration</Trans>
        </Button>
      )}
      <FlagInput
        label={t`Add a parameter to the list`}
        draft={draft}
        taken={names}
        onAdd={(name) => set(withName(rows, name))}
      />
    </section>
  );
}

interface CellProps {
  label: string;
  value: unknown;
  onChange: (value: unknown) => void;
}

/** Its text stays as it is typed while what it means is the file's. */
function Cell({ label, value, onChange }: CellProps) {
  const text = value === null || value === undefined ? "" : valueText(value);
  const [typed, setTyped] = useState(text);
  const read = (entered: string) => valuesOf(entered)[0] ?? null;
  const isTyped = JSON.stringify(read(typed)) === JSON.stringify(value ?? null);
  return (
    <TextInput
      size="xs"
      aria-label={label}
      value={isTyped ? typed : text}
      onChange={(event) => {
        setTyped(event.currentTarget.value);
        onChange(read(event.currentTarget.value));
      }}
    />
  );
}
