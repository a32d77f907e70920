import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { NativeSelect } from "@mantine/core";
import { DeploymentMode, LoadKind, Objective, STRATEGIES, Strategy } from "@schemas/messages";
import { MAX_OBJECTIVES } from "@/domain/rules.generated";
import { isOneOf } from "@/lib/is-one-of";
import { textAt, goalsOf, MAXIMIZE_LOAD, valueAt, withGoals, withTurns, withValue } from "../draft";
import classes from "./draft-form.module.css";
import { EngineCards } from "./engine-cards";
import { Choice, errorOf, ListField, NumberField, TextField, type FormProps } from "./fields";
import { Parameters } from "./parameters";
import { Picks } from "./picks";
import { Uploads } from "./uploads";

const CHECKING = Strategy.filter((strategy) => STRATEGIES[strategy].checks_best);

const TRUST = [
  { value: "", label: t`default of the strategy (${CHECKING.join(", ")}: yes)` },
  { value: "true", label: t`yes: repeat the leaders until the lead is significant` },
  { value: "false", label: t`no: measure each configuration once` },
];

export function DraftForm(props: FormProps) {
  const isLoadSearched = valueAt(props.draft, "benchmark.load_search") !== undefined;
  return (
    <form onSubmit={(event) => event.preventDefault()}>
      <fieldset className={classes.part}>
        <legend>
          <Trans>Task</Trans>
        </legend>
        <TextField {...props} path="task_name" label={t`Name`} />
        <TextField {...props} path="description" label={t`Description`} />
      </fieldset>
      <fieldset className={classes.part}>
        <legend>
          <Trans>Model and engine</Trans>
        </legend>
        <EngineCards {...props} />
        <TextField {...props} path="model.id_or_path" label={t`Model ID or path`} />
        <Choice
          {...props}
          path="deployment_mode"
          label={t`Deployment mode`}
          options={DeploymentMode}
        />
        <NumberField
          {...props}
          path="gpus.count"
          label={t`GPUs per experiment`}
          min={1}
          placeholder={t`from the parallelism`}
        />
      </fieldset>
      <Parameters {...props} />
      <fieldset className={classes.part}>
        <legend>
          <Trans>Search</Trans>
        </legend>
        <Choice {...props} path="optimization.strategy" label={t`Strategy`} options={Strategy} />
        <Goals {...props} />
        <NativeSelect
          size="xs"
          label={t`Confirm the winner with repeated runs`}
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
          label={t`Max experiments`}
          min={1}
          placeholder={t`whole grid, or 50 for a search`}
        />
        <NumberField
          {...props}
          path="optimization.max_parallel"
          label={t`Max parallel experiments`}
          min={1}
        />
        <NumberField
          {...props}
          path="optimization.timeout_per_iteration"
          label={t`Time limit per experiment (s)`}
          min={1}
        />
        <NumberField
          {...props}
          path="optimization.max_gpu_hours"
          label={t`Budget (GPU-hours)`}
          min={0}
          placeholder={t`none`}
        />
        <WarmStart {...props} />
      </fieldset>
      <fieldset className={classes.part}>
        <legend>
          <Trans>Benchmark</Trans>
        </legend>
        <Uploads {...props} />
        <ListField {...props} path="benchmark.traffic_scenarios" label={t`Scenarios`} isText />
        {isLoadSearched ? (
          <LoadSearchFields {...props} />
        ) : (
          <>
            <ListField {...props} path="benchmark.num_concurrency" label={t`Concurrency levels`} />
            <ListField
              {...props}
              path="benchmark.arrivals"
              label={t`Arrival patterns instead, such as poisson(20), burst(20,5), closed(8)`}
              isText
              isOptional
            />
          </>
        )}
        <Conversations {...props} />
        <NumberField
          {...props}
          path="benchmark.max_time_per_iteration"
          label={t`Max time per level (min)`}
          min={0}
        />
        <NumberField
          {...props}
          path="benchmark.max_requests_per_iteration"
          label={t`Max requests per level`}
          min={1}
          placeholder="100"
        />
        <QualityProbe {...props} />
      </fieldset>
      <fieldset className={classes.part}>
        <legend>
          <Trans>Service level objectives (SLO){isLoadSearched ? "" : ", optional"}</Trans>
        </legend>
        <NumberField
          {...props}
          path="slo.ttft.threshold"
          label={t`Time to first token (s)`}
          min={0}
        />
        <NumberField
          {...props}
          path="slo.tpot.threshold"
          label={t`Time per output token (s)`}
          min={0}
        />
        <NumberField
          {...props}
          path="slo.latency.p99.threshold"
          label={t`p99 e2e latency (s)`}
          min={0}
        />
        <TextField
          {...props}
          path="optimization.constraints"
          label={
            isLoadSearched ? t`Constraints on the load` : t`Constraints on the best experiment`
          }
          placeholder={t`ttft:p99<300ms, error_rate<1%`}
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
        label={t`Objective`}
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
        label={t`Further objectives`}
        placeholder={t`add an objective to trade off`}
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
      label={t`Warm start from past tasks`}
      data={[
        { value: "", label: t`no` },
        { value: "true", label: t`yes: same model, engine and benchmark` },
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
  { value: "", label: t`if the task may change the answers` },
  { value: "on", label: t`always` },
  { value: "off", label: t`never` },
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
        label={t`Compare answers with the baseline`}
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
            label={t`Min agreement (0 to 1)`}
            min={0}
            placeholder="0.5"
          />
          <TextField
            {...props}
            path={at("accuracy_file")}
            label={t`Accuracy file (questions with answers)`}
            placeholder={t`none`}
          />
          <NumberField
            {...props}
            path={at("max_accuracy_loss")}
            label={t`Max accuracy loss (0 to 1)`}
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
        label={t`Turns per conversation`}
        min={1}
        placeholder={t`1 (single requests)`}
        onPick={(value) => props.onChange(withTurns(props.draft, value))}
      />
      {typeof turns === "number" && turns > 1 && (
        <NumberField
          {...props}
          path="benchmark.think_seconds"
          label={t`Pause before the next turn (s)`}
          min={0}
          placeholder="0"
        />
      )}
      <NumberField
        {...props}
        path="benchmark.prefix_share"
        label={t`Shared prompt prefix (0 to 1)`}
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
      <Choice {...props} path={path("load")} label={t`Load type`} options={LoadKind} />
      <NumberField {...props} path={path("min")} label={t`Min load`} min={0} placeholder="1" />
      <NumberField {...props} path={path("max")} label={t`Max load`} min={0} />
      <NumberField
        {...props}
        path={path("tolerance")}
        label={t`Tolerance (share of the load)`}
        min={0}
        placeholder="0.1"
      />
      <NumberField
        {...props}
        path={path("max_levels")}
        label={t`Max levels per experiment`}
        min={2}
        placeholder="14"
      />
    </>
  );
}
