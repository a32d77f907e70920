import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import type { Cell } from "@/lib/csv";
import { preciseMoment } from "@/lib/time";
import { number, UNKNOWN, whole } from "@/lib/units";
import classes from "./chart-rows.module.css";

export interface ChartTable {
  /** With units: "power mean (W)". */
  columns: string[];
  rows: Cell[][];
}

/** More would make the page slow; the CSV has all. */
const MOST_ROWS = 500;

/** What a chart shows, for who reads numbers, or hears them; whole ones on hover. */
export function ChartRows({ title, table }: { title: string; table: ChartTable }) {
  const { columns, rows } = table;
  return (
    // It scrolls by the keyboard too.
    <div className={classes.rows} tabIndex={0} role="region" aria-label={t`${title}, its values`}>
      <table>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column} scope="col">
                {column}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, MOST_ROWS).map((row, at) => (
            <tr key={at}>
              {row.map((cell, column) => (
                <td
                  key={columns[column]}
                  data-number={typeof cell === "number" || undefined}
                  title={String(cell ?? "")}
                >
                  {cellText(cell)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length > MOST_ROWS && (
        <p className="dim">
          <Trans>
            The first {whole(MOST_ROWS)} of {whole(rows.length)}; the CSV has all.
          </Trans>
        </p>
      )}
    </div>
  );
}

const MOMENT = /^\d{4}-\d\d-\d\dT/;

function cellText(cell: Cell): string {
  if (cell === null || cell === "") return UNKNOWN;
  if (typeof cell === "number") return number(cell);
  return MOMENT.test(cell) ? preciseMoment(cell) : cell;
}
