import { Button, NativeSelect, NumberInput, TextInput } from "@mantine/core";
import { useState } from "react";
import type { Problem } from "@schemas/messages";
import { whole } from "@/lib/units";
import { gridSize, isAbout, MAXIMIZE_LOAD, valueAt, valuesOf, withObjective, withValue, type Draft } from "../draft";
import classes from "./draft-form.module.css";

interface FormProps {
  draft: Draft;
  problem: Problem | null;
  onChange: (draft: Draft) => void;
}

const STRATEGIES = ["grid_search", "random", "bayesian", "auto"];
const OBJECTIVES = [
  "maximize_throughput",
  "maximize_goodput",
  "maximize_tokens_per_joule",
  "minimize_cost",
  "minimize_latency",
  "minimize_ttft",
  "minimize_tpot",
  MAXIMIZE_LOAD,
];
const TRUST = [
  { value: "", label: "as the strategy has it (auto: yes)" },
  { value: "true", label: "yes: repeat the leaders until chance is ruled out" },
  { value: "false", label: "no: each configuration once" },
];

export function DraftForm(props: FormProps) {
  const isLoadSearched = valueAt(props.draft, "benchmark.load_search") !== undefined;
  return (
    <form onSubmit={(event) => event.preventDefault()}>
      <fieldset className={classes.part}>
        <legend>Task</legend>
        <TextField {...props} path="task_name" label="Name" />
        <TextField {...props} path="description" label="Description" />
      </fieldset>
      <fieldset className={classes.part}>
        <legend>Model and engine</legend>
        <TextField {...props} path="model.id_or_path" label="Model: id or path" />
        <TextField {...props} path="base_runtime" label="Engine: vllm, sglang, llamacpp, simulated" />
        <Choice {...props} path="deployment_mode" label="Runs as" options={["process", "docker", "kubernetes", "ome"]} />
        <NumberField {...props} path="gpus.count" label="GPUs per experiment" min={1} placeholder="by its parallelism" />
      </fieldset>
      <Parameters {...props} />
      <fieldset className={classes.part}>
        <legend>Search</legend>
        <Choice {...props} path="optimization.strategy" label="Strategy" options={STRATEGIES} />
        <Choice
          {...props}
          path="optimization.objective"
          label="Objective"
          options={OBJECTIVES}
          onPick={(objective) => props.onChange(withObjective(props.draft, objective))}
        />
        <NativeSelect
          size="xs"
          label="Measure again before a winner is declared"
          data={TRUST}
          value={String(valueAt(props.draft, "optimization.trust") ?? "")}
          error={errorOf({ ...props, path: "optimization.trust" })}
          onChange={({ currentTarget: { value } }) =>
            props.onChange(withValue(props.draft, "optimization.trust", value === "" ? undefined : value === "true"))
          }
        />
        <NumberField {...props} path="optimization.max_iterations" label="Experiments, at most" min={1} placeholder="all of a grid, 50 of a search" />
        <NumberField {...props} path="optimization.max_parallel" label="At once, at most" min={1} />
        <NumberField {...props} path="optimization.timeout_per_iteration" label="Limit of an experiment (s)" min={1} />
      </fieldset>
      <fieldset className={classes.part}>
        <legend>Benchmark</legend>
        <ListField {...props} path="benchmark.traffic_scenarios" label="Scenarios" isText />
        {isLoadSearched ? (
          <LoadSearchFields {...props} />
        ) : (
          <ListField {...props} path="benchmark.num_concurrency" label="Concurrency levels" />
        )}
        <NumberField {...props} path="benchmark.max_time_per_iteration" label="Time of a level, at most (min)" min={0} />
        <NumberField {...props} path="benchmark.max_requests_per_iteration" label="Requests of a level, at most" min={1} placeholder="100" />
      </fieldset>
      <fieldset className={classes.part}>
        <legend>Objectives of service{isLoadSearched ? "" : ", optional"}</legend>
        <NumberField {...props} path="slo.ttft.threshold" label="Time to first token (s)" min={0} />
        <NumberField {...props} path="slo.tpot.threshold" label="Time per output token (s)" min={0} />
        <NumberField {...props} path="slo.latency.p99.threshold" label="p99 e2e latency (s)" min={0} />
        <TextField {...props} path="optimization.constraints" label={isLoadSearched ? "Constraints that the load has to meet" : "Constraints of the best"} placeholder="ttft:p99<300ms, error_rate<1%" />
      </fieldset>
    </form>
  );
}

/** In place of levels: between which loads the greatest is sought. */
function LoadSearchFields(props: FormProps) {
  const path = (name: string) => `benchmark.load_search.${name}`;
  return (
    <>
      <Choice {...props} path={path("load")} label="Load that is raised" options={["concurrency", "poisson", "constant"]} />
      <NumberField {...props} path={path("min")} label="Least load" min={0} placeholder="1" />
      <NumberField {...props} path={path("max")} label="Greatest load that is tried" min={0} />
      <NumberField {...props} path={path("tolerance")} label="Bracket wanted, as a share of the load" min={0} placeholder="0.1" />
      <NumberField {...props} path={path("max_levels")} label="Levels of an experiment, at most" min={2} placeholder="14" />
    </>
  );
}

interface FieldProps extends FormProps {
  path: string;
  label: string;
}

function errorOf({ problem, path }: { problem: Problem | null; path: string }): string | null {
  return problem && isAbout(problem.path, path) ? problem.detail : null;
}

/** With a placeholder it may be empty, and is left out of the file then. */
function TextField({ draft, problem, onChange, path, label, placeholder }: FieldProps & { placeholder?: string }) {
  return (
    <TextInput
      size="xs"
      label={label}
      placeholder={placeholder}
      value={String(valueAt(draft, path) ?? "")}
      error={errorOf({ problem, path })}
      onChange={(event) => onChange(withValue(draft, path, event.currentTarget.value || (placeholder ? undefined : "")))}
    />
  );
}

function NumberField(props: FieldProps & { min: number; placeholder?: string }) {
  const { draft, problem, onChange, path, label, min, placeholder } = props;
  const value = valueAt(draft, path);
  return (
    <NumberInput
      size="xs"
      label={label}
      min={min}
      placeholder={placeholder}
      value={typeof value === "number" ? value : ""}
      error={errorOf({ problem, path })}
      onChange={(entered) => onChange(withValue(draft, path, typeof entered === "number" ? entered : undefined))}
    />
  );
}

interface ChoiceProps extends FieldProps {
  options: string[];
  /** Where a choice changes more than its field. */
  onPick?: (value: string) => void;
}

function Choice({ draft, problem, onChange, path, label, options, onPick }: ChoiceProps) {
  const value = valueAt(draft, path);
  return (
    <NativeSelect
      size="xs"
      label={label}
      data={typeof value === "string" && !options.includes(value) ? [value, ...options] : options}
      value={typeof value === "string" ? value : options[0]}
      error={errorOf({ problem, path })}
      onChange={({ currentTarget: { value: picked } }) => (onPick ? onPick(picked) : onChange(withValue(draft, path, picked)))}
    />
  );
}

const shown = (values: unknown) =>
  Array.isArray(values) ? values.map((value) => (typeof value === "string" ? value : JSON.stringify(value))).join(", ") : "";

/** Its text stays as it is typed, with its last comma, while what it means is the file's. */
function ListText(props: {
  label: string;
  values: unknown;
  error: string | null;
  isText?: boolean;
  onChange: (values: unknown[]) => void;
}) {
  const { label, values, error, isText, onChange } = props;
  const separator = isText ? /\s*;\s*|\s*,\s*(?![^(]*\))/ : null;
  const read = (text: string) => (separator ? text.split(separator).filter(Boolean) : valuesOf(text));
  const [typed, setTyped] = useState(shown(values));
  const isOwn = JSON.stringify(read(typed)) === JSON.stringify(values ?? []);
  return (
    <TextInput
      size="xs"
      label={label}
      value={isOwn ? typed : shown(values)}
      error={error}
      onChange={(event) => {
        setTyped(event.currentTarget.value);
        onChange(read(event.currentTarget.value));
      }}
    />
  );
}

function ListField({ draft, problem, onChange, path, label, isText }: FieldProps & { isText?: boolean }) {
  return (
    <ListText
      label={label}
      values={valueAt(draft, path)}
      error={errorOf({ problem, path })}
      isText={isText}
      onChange={(values) => onChange(withValue(draft, path, values))}
    />
  );
}

function Parameters({ draft, problem, onChange }: FormProps) {
  const [name, setName] = useState("");
  const found = valueAt(draft, "parameters");
  const parameters = (typeof found === "object" && found !== null ? found : {}) as Draft;
  const size = gridSize(parameters);
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
            <TextInput size="xs" label={key} readOnly value={JSON.stringify(values)} description="changed in the file" />
          )}
          <Button
            size="xs"
            variant="default"
            aria-label={`remove ${key}`}
            onClick={() => set(Object.fromEntries(Object.entries(parameters).filter(([other]) => other !== key)))}
          >
            Remove
          </Button>
        </div>
      ))}
      <div className={classes.parameter}>
        <TextInput
          size="xs"
          label="Another parameter"
          placeholder="its name, as the engine has it"
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
    </fieldset>
  );
}
