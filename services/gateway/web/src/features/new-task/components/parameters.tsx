import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button, TextInput } from "@mantine/core";
import { whole } from "@/lib/units";
import { gridSize, valueAt, withMoved, type Draft } from "../draft";
import classes from "./draft-form.module.css";
import { errorOf, ListText, type FormProps } from "./fields";
import { Configurations } from "./configurations";
import { flagOf, FlagInput, flagText, useFlags } from "./flag-input";
import { Presets } from "./presets";

export function Parameters(props: FormProps) {
  const { draft, problem, onChange } = props;
  const flags = useFlags(draft);
  const value = valueAt(draft, "parameters");
  const parameters = (typeof value === "object" && value !== null ? value : {}) as Draft;
  const rows = valueAt(draft, "configurations");
  const rowCount = Array.isArray(rows) ? rows.length : 0;
  const size = gridSize(parameters, rowCount);
  const keys = Object.keys(parameters);
  const set = (changed: Draft) => onChange({ ...draft, parameters: changed });
  const describe = (name: string) => {
    const flag = flagOf(flags, name);
    return flag && flagText(flag);
  };
  return (
    <fieldset className={classes.part}>
      <legend>
        <Trans>
          Parameters{" "}
          <span className="dim">{size === null ? "" : t`· a grid of ${whole(size)}`}</span>
        </Trans>
      </legend>
      {Object.entries(parameters).map(([key, values], at) => (
        <div key={key} className={classes.parameter}>
          {Array.isArray(values) ? (
            <ListText
              label={key}
              values={values}
              error={errorOf({ problem, path: `parameters.${key}` })}
              description={describe(key)}
              onChange={(changed) => set({ ...parameters, [key]: changed })}
            />
          ) : (
            <TextInput
              size="xs"
              label={key}
              readOnly
              value={JSON.stringify(values)}
              description={t`edit in the file`}
            />
          )}
          {keys.length > 1 &&
            ([-1, 1] as const).map((by) => (
              // It keeps the focus where it leads no further.
              <Button
                key={by}
                size="xs"
                px={8}
                variant="default"
                aria-label={by < 0 ? t`move ${key} up` : t`move ${key} down`}
                title={t`The last parameter changes first`}
                aria-disabled={keys[at + by] === undefined}
                data-disabled={keys[at + by] === undefined || undefined}
                onClick={() => set(withMoved(parameters, key, by))}
              >
                {by < 0 ? "↑" : "↓"}
              </Button>
            ))}
          <Button
            size="xs"
            variant="default"
            aria-label={t`remove ${key}`}
            onClick={() =>
              set(Object.fromEntries(Object.entries(parameters).filter(([other]) => other !== key)))
            }
          >
            <Trans>Remove</Trans>
          </Button>
        </div>
      ))}
      <FlagInput
        label={t`Add a parameter`}
        draft={draft}
        taken={keys}
        onAdd={(name) => set({ ...parameters, [name]: [] })}
      />
      <Configurations {...props} />
      <Presets {...props} />
    </fieldset>
  );
}
