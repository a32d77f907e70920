import { t } from "@lingui/core/macro";
import { useQuery } from "@tanstack/react-query";
import type { EngineChoice } from "@schemas/messages";
import { Failure } from "@/components/page";
import { SimulatedBadge } from "@/components/simulated-badge";
import { showToast } from "@/lib/toasts";
import { enginesOptions } from "../api/get-engines";
import { valueAt } from "../draft";
import { withEngine } from "../engine-draft";
import classes from "./engine-cards.module.css";
import { errorOf, TextField, type FormProps } from "./fields";

/** The engines to choose among; another one brings its model, mode and parameters. */
export function EngineCards(props: FormProps) {
  const { draft, onChange } = props;
  const engines = useQuery(enginesOptions);
  const chosen = valueAt(draft, "base_runtime");
  const isOther = engines.data?.every((engine) => engine.name !== chosen) ?? false;
  const choose = (engine: EngineChoice) => {
    onChange(withEngine(draft, engine));
    showToast({
      text: t`The model, mode and parameters of ${engine.title} are loaded`,
      undo: () => onChange(draft),
    });
  };
  const error = errorOf({ ...props, path: "base_runtime" });
  return (
    <div className={classes.whole}>
      {engines.error && <Failure error={engines.error} retry={() => void engines.refetch()} />}
      <div role="radiogroup" aria-label={t`Engine`} className={classes.cards}>
        {engines.data?.map((engine) => (
          <label key={engine.name} className={classes.card}>
            <input
              type="radio"
              name="engine"
              checked={engine.name === chosen}
              onChange={() => choose(engine)}
            />
            <span>
              <strong>{engine.title}</strong> {engine.simulated && <SimulatedBadge />}
              <span className={classes.about}>
                {engine.deployment_mode}, {engine.model}
                <br />
                {Object.keys(engine.parameters).join(", ")}
              </span>
            </span>
          </label>
        ))}
      </div>
      {(isOther || engines.error) && (
        <TextField {...props} path="base_runtime" label={t`Engine that an operator declared`} />
      )}
      {error && !isOther && (
        <p role="alert" className={classes.error}>
          {error}
        </p>
      )}
    </div>
  );
}
