import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQuery } from "@tanstack/react-query";
import { Loaded } from "@/components/page";
import { StateMark } from "@/components/state-mark";
import { readinessOptions } from "../api/get-readiness";
import classes from "./admin.module.css";

/** As `/readyz` names them. */
const PARTS = [
  "bus",
  "postgres",
  "scheduler",
  "orchestrator",
  "results",
  "executor",
  "telemetry",
  "disk",
];

export function PlatformHealth() {
  const ready = useQuery(readinessOptions);
  return (
    <>
      <Loaded query={ready}>
        {({ missing, detail }) => (
          <>
            <ul className={classes.services} aria-label={t`Services`}>
              {PARTS.map((part) => (
                <li key={part}>
                  <strong>{part}</strong>{" "}
                  {missing.includes(part) ? (
                    <StateMark kind="bad" word={part === "disk" ? t`full` : t`not responding`} />
                  ) : (
                    <StateMark kind="ok" word={part === "disk" ? t`has room` : t`answers`} />
                  )}
                </li>
              ))}
            </ul>
            {detail && (
              <p>
                <Trans>
                  {detail}. <code>gpusteward doctor</code> on the platform&apos;s host shows
                  details.
                </Trans>
              </p>
            )}
          </>
        )}
      </Loaded>
    </>
  );
}
