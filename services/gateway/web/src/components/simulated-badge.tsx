import classes from "./simulated-badge.module.css";

export function SimulatedBadge() {
  return (
    <span className={classes.badge} title="Simulated readings: there is no real GPU behind them">
      simulated
    </span>
  );
}
