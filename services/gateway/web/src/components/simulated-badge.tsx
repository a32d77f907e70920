import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import classes from "./simulated-badge.module.css";

export function SimulatedBadge() {
  return (
    <span className={classes.badge} title={t`Simulated readings: there is no real GPU behind them`}>
      <Trans>simulated</Trans>
    </span>
  );
}
