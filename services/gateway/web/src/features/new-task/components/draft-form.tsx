import { NativeSelect } from "@mantine/core";
import { MAXIMIZE_LOAD, valueAt, withObjective, withValue } from "../draft";
import classes from "./draft-form.module.css";
import { Choice, errorOf, ListField, NumberField, TextField, type FormProps } from "./fields";
import { Parameters } from "./parameters";

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
