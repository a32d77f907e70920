import { NativeSelect } from "@mantine/core";
import { DeploymentMode, LoadKind, Objective, STRATEGIES, Strategy } from "@schemas/messages";
import { ENGINES, MAX_OBJECTIVES } from "@/domain/rules.generated";
import { isOneOf } from "@/lib/is-one-of";
import { textAt, goalsOf, MAXIMIZE_LOAD, valueAt, withGoals, withTurns, withValue } from "../draft";
import classes from "./draft-form.module.css";
import { Choice, errorOf, ListField, NumberField, TextField, type FormProps } from "./fields";
import { Parameters } from "./parameters";
import { Picks } from "./picks";

const CHECKING = Strategy.filter((strategy) => STRATEGIES[strategy].checks_best);

const TRUST = [
  { value: "", label: `default of the strategy (${CHECKING.join(", ")}: yes)` },
  { value: "true", label: "yes: repeat the leaders until the lead is significant" },
  { value: "false", label: "no: measure each configuration once" },
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
        <TextField {...props} path="model.id_or_path" label="Model ID or path" />
        <TextField {...props} path="base_runtime" label={`Engine: ${ENGINES.join(", ")}`} />
        <Choice
          {...props}
          path="deployment_mode"
          label="Deployment mode"
          options={DeploymentMode}
        />
        <NumberField
          {...props}
          path="gpus.count"
          label="GPUs per experiment"
          min={1}
          placeholder="from the parallelism"
        />
      </fieldset>
      <Parameters {...props} />
      <fieldset className={classes.part}>
        <legend>Search</legend>
        <Choice {...props} path="optimization.strategy" label="Strategy" options={Strategy} />
        <Goals {...props} />
        <NativeSelect
          size="xs"
          label="Confirm the winner with repeated runs"
          data={TRUST}
          value={textAt(props.draft, "optimization.trust")}
          error={errorOf({ ...props, path: "optimization.trust" })}
          onChange={({ currentTarget: { value } }) =>
            props.onChange(
              withValue(
                props.draft,
                "optimization.trust",
                value === "" ? undefined : value === "true",
              ),
            )
          }
        />
        <NumberField
          {...props}
          path="optimization.max_iterations"
          label="Max experiments"
          min={1}
          placeholder="whole grid, or 50 for a search"
        />
        <NumberField
          {...props}
          path="optimization.max_parallel"
          label="Max parallel experiments"
          min={1}
        />
        <NumberField
          {...props}
          path="optimization.timeout_per_iteration"
          label="Time limit per experiment (s)"
          min={1}
        />
        <NumberField
          {...props}
          path="optimization.max_gpu_hours"
          label="Budget (GPU-hours)"
          min={0}
          placeholder="none"
        />
        <WarmStart {...props} />
      </fieldset>
      <fieldset className={classes.part}>
        <legend>Benchmark</legend>
        <ListField {...props} path="benchmark.traffic_scenarios" label="Scenarios" isText />
        {isLoadSearched ? (
          <LoadSearchFields {...props} />
        ) : (
          <>
            <ListField {...props} path="benchmark.num_concurrency" label="Concurrency levels" />
            <ListField
              {...props}
              path="benchmark.arrivals"
              label="Arrival patterns instead, such as poisson(20), burst(20,5), closed(8)"
              isText
              isOptional
            />
          </>
        )}
        <Conversations {...props} />
        <NumberField
          {...props}
          path="benchmark.max_time_per_iteration"
          label="Max time per level (min)"
          min={0}
        />
        <NumberField
          {...props}
          path="benchmark.max_requests_per_iteration"
          label="Max requests per level"
          min={1}
          placeholder="100"
        />
        <QualityProbe {...props} />
      </fieldset>
      <fieldset className={classes.part}>
        <legend>Service level objectives (SLO){isLoadSearched ? "" : ", optional"}</legend>
        <NumberField {...props} path="slo.ttft.threshold" label="Time to first token (s)" min={0} />
        <NumberField
          {...props}
          path="slo.tpot.threshold"
          label="Time per output token (s)"
          min={0}
        />
        <NumberField
          {...props}
          path="slo.latency.p99.threshold"
          label="p99 e2e latency (s)"
          min={0}
        />
        <TextField
          {...props}
          path="optimization.constraints"
          label={isLoadSearched ? "Constraints on the load" : "Constraints on the best experiment"}
          placeholder="ttft:p99<300ms, error_rate<1%"
        />
      </fieldset>
    </form>
  );
}

function Goals(props: FormProps) {
  const [first = "", ...others] = goalsOf(props.draft);
  return (
    <>
      <NativeSelect
        size="xs"
        label="Objective"
        data={isOneOf(Objective, first) ? Objective : [first, ...Objective]}
        value={first}
        error={errorOf({ ...props, path: "optimization.objective" })}
        onChange={({ currentTarget: { value } }) =>
          props.onChange(
            withGoals(props.draft, [value, ...others.filter((other) => other !== value)]),
          )
        }
      />
      <Picks
        label="Further objectives"
        placeholder="add an objective to trade off"
        options={Objective.filter(
          (objective) => objective !== first && objective !== MAXIMIZE_LOAD,
        ).map((value) => ({ value, label: value }))}
        chosen={others}
        most={MAX_OBJECTIVES - 1}
        error={errorOf({ ...props, path: "optimization.objectives" })}
        onChange={(goals) => props.onChange(withGoals(props.draft, [first, ...goals]))}
      />
    </>
  );
}

function WarmStart(props: FormProps) {
  const path = "optimization.warm_start";
  const isOn = valueAt(props.draft, path) === true;
  const strategy = textAt(props.draft, "optimization.strategy");
  const isPossible =
    isOneOf(Strategy, strategy) &&
    STRATEGIES[strategy].takes_warm_start &&
    goalsOf(props.draft).length === 1;
  if (!isOn && !isPossible) return null;
  return (
    <NativeSelect
      size="xs"
      label="Warm start from past tasks"
      data={[
        { value: "", label: "no" },
        { value: "true", label: "yes: same model, engine and benchmark" },
      ]}
      value={isOn ? "true" : ""}
      error={errorOf({ ...props, path })}
      onChange={({ currentTarget: { value } }) =>
        props.onChange(withValue(props.draft, path, value === "true" || undefined))
      }
    />
  );
}

const PROBES = [
  { value: "", label: "if the task may change the answers" },
  { value: "on", label: "always" },
  { value: "off", label: "never" },
];
const PROMPTS = 16;

/** Whether a faster configuration still answers the same. */
function QualityProbe(props: FormProps) {
  const at = (name: string) => `benchmark.quality.${name}`;
  const probe = valueAt(props.draft, "benchmark.quality");
  const isOff =
    valueAt(props.draft, at("prompts")) === 0 && !valueAt(props.draft, at("accuracy_file"));
  const isOn = probe !== undefined && probe !== null && !isOff;
  const probed: Record<string, unknown> = {
    "": undefined,
    on: { prompts: PROMPTS },
    off: { prompts: 0 },
  };
  return (
    <>
      <NativeSelect
        size="xs"
        label="Compare answers with the baseline"
        data={PROBES}
        value={isOn ? "on" : probe ? "off" : ""}
        error={errorOf({ ...props, path: "benchmark.quality" })}
        onChange={({ currentTarget: { value } }) =>
          props.onChange(withValue(props.draft, "benchmark.quality", probed[value]))
        }
      />
      {isOn && (
        <>
          <NumberField
            {...props}
            path={at("min_agreement")}
            label="Min agreement (0 to 1)"
            min={0}
            placeholder="0.5"
          />
          <TextField
            {...props}
            path={at("accuracy_file")}
            label="Accuracy file (questions with answers)"
            placeholder="none"
          />
          <NumberField
            {...props}
            path={at("max_accuracy_loss")}
            label="Max accuracy loss (0 to 1)"
            min={0}
            placeholder="0.02"
          />
        </>
      )}
    </>
  );
}

/** Of how much of a prompt the engine may have in its cache. */
function Conversations(props: FormProps) {
  const turns = valueAt(props.draft, "benchmark.turns");
  return (
    <>
      <NumberField
        {...props}
        path="benchmark.turns"
        label="Turns per conversation"
        min={1}
        placeholder="1 (single requests)"
        onPick={(value) => props.onChange(withTurns(props.draft, value))}
      />
      {typeof turns === "number" && turns > 1 && (
        <NumberField
          {...props}
          path="benchmark.think_seconds"
          label="Pause before the next turn (s)"
          min={0}
          placeholder="0"
        />
      )}
      <NumberField
        {...props}
        path="benchmark.prefix_share"
        label="Shared prompt prefix (0 to 1)"
        min={0}
        placeholder="0"
      />
    </>
  );
}

/** In place of levels: between which loads the greatest is sought. */
function LoadSearchFields(props: FormProps) {
  const path = (name: string) => `benchmark.load_search.${name}`;
  return (
    <>
      <Choice {...props} path={path("load")} label="Load type" options={LoadKind} />
      <NumberField {...props} path={path("min")} label="Min load" min={0} placeholder="1" />
      <NumberField {...props} path={path("max")} label="Max load" min={0} />
      <NumberField
        {...props}
        path={path("tolerance")}
        label="Tolerance (share of the load)"
        min={0}
        placeholder="0.1"
      />
      <NumberField
        {...props}
        path={path("max_levels")}
        label="Max levels per experiment"
        min={2}
        placeholder="14"
      />
    </>
  );
}
