import { Button, TextInput } from "@mantine/core";
import { useState } from "react";
import { whole } from "@/lib/units";
import { gridSize, valueAt, type Draft } from "../draft";
import classes from "./draft-form.module.css";
import { errorOf, ListText, type FormProps } from "./fields";
import { Presets } from "./presets";

export function Parameters(props: FormProps) {
  const { draft, problem, onChange } = props;
  const [name, setName] = useState("");
  const value = valueAt(draft, "parameters");
  const parameters = (typeof value === "object" && value !== null ? value : {}) as Draft;
  const rows = valueAt(draft, "configurations");
  const rowCount = Array.isArray(rows) ? rows.length : 0;
  const size = gridSize(parameters, rowCount);
  const set = (changed: Draft) => onChange({ ...draft, parameters: changed });
  return (
    <fieldset className={classes.part}>
      <legend>
        Parameters <span className="dim">{size === null ? "" : `· a grid of ${whole(size)}`}</span>
      </legend>
      {Object.entries(parameters).map(([key, values]) => (
        <div key={key} className={classes.parameter}>
          {Array.isArray(values) ? (
            <ListText
              label={key}
              values={values}
              error={errorOf({ problem, path: `parameters.${key}` })}
              onChange={(changed) => set({ ...parameters, [key]: changed })}
            />
          ) : (
            <TextInput
              size="xs"
              label={key}
              readOnly
              value={JSON.stringify(values)}
              description="edit in the file"
            />
          )}
          <Button
            size="xs"
            variant="default"
            aria-label={`remove ${key}`}
            onClick={() =>
              set(Object.fromEntries(Object.entries(parameters).filter(([other]) => other !== key)))
            }
          >
            Remove
          </Button>
        </div>
      ))}
      {rowCount > 0 && (
        <TextInput
          size="xs"
          label="Configurations"
          readOnly
          value={`${whole(rowCount)} rows`}
          description="edit in the file"
        />
      )}
      <div className={classes.parameter}>
        <TextInput
          size="xs"
          label="Add a parameter"
          placeholder="name, as the engine spells it"
          value={name}
          onChange={(event) => setName(event.currentTarget.value)}
        />
        <Button
          size="xs"
          variant="default"
          disabled={!name.trim() || name.trim() in parameters}
          onClick={() => {
            set({ ...parameters, [name.trim()]: [] });
            setName("");
          }}
        >
          Add
        </Button>
      </div>
      <Presets {...props} />
    </fieldset>
  );
}
