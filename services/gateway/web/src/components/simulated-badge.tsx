import classes from "./simulated-badge.module.css";

export function SimulatedBadge() {
  return (
    <span className={classes.badge} title="These readings are made up: no real GPU is behind them">
      simulated
    </span>
  );
}
