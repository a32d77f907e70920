import type { ReactNode } from "react";
import classes from "./chart-grid.module.css";

/** Charts beside each other where there is room. */
export function ChartGrid({ children }: { children: ReactNode }) {
  return <div className={classes.grid}>{children}</div>;
}
