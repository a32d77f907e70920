import { useMemo, type ReactNode } from "react";
import { meaningOf } from "@/domain/terms";
import { useUrlState } from "@/lib/url-state";
import classes from "./data-table.module.css";

export interface Column<T> {
  name: string;
  /** In the header, under the name. */
  unit?: string;
  title?: string;
  isNumber?: boolean;
  /** Sentences: it wraps, and stays wide enough to be read where the table is wider than its page. */
  isLong?: boolean;
  cell: (row: T) => ReactNode;
  /** Without one the column does not sort; null comes last. */
  sortBy?: (row: T) => string | number | null | undefined;
}

interface DataTableProps<T> {
  label: string;
  columns: Column<T>[];
  rows: T[];
  rowKey: (row: T) => string;
  isMarked?: (row: T) => boolean;
  /** As a header's: the name of a column, with `-` before it the greatest first. */
  firstOrder?: string;
  /** In place of a table without rows. */
  empty?: string;
}

/** Dense, sortable by its headers; the order is part of the address. On a phone each row is a card. */
export function DataTable<T>({
  label,
  columns,
  rows,
  rowKey,
  isMarked,
  firstOrder = "",
  empty,
}: DataTableProps<T>) {
  const [order, setOrder] = useUrlState(
    `sort-${label.toLowerCase().replaceAll(/[^a-z]+/g, "-")}`,
    firstOrder,
  );
  const isDown = order.startsWith("-");
  const by = isDown ? order.slice(1) : order;
  const sorted = useMemo(() => {
    const key = columns.find((column) => column.name === by)?.sortBy;
    return key ? inOrder(rows, key, isDown) : rows;
  }, [by, columns, isDown, rows]);
  if (empty !== undefined && rows.length === 0) return <p className="dim">{empty}</p>;
  return (
    // A table that is wider than its page scrolls by the keyboard too.
    <div className={classes.scroll} tabIndex={0} role="region" aria-label={label}>
      <table className={classes.table}>
        <thead>
          <tr>
            {columns.map((column) => (
              <th
                key={column.name}
                scope="col"
                title={column.title ?? meaningOf(column.name)}
                data-number={column.isNumber || undefined}
                aria-sort={by === column.name ? (isDown ? "descending" : "ascending") : undefined}
              >
                {column.sortBy ? (
                  <button
                    type="button"
                    onClick={() => setOrder(by === column.name && !isDown ? `-${by}` : column.name)}
                  >
                    {column.name}
                    {by === column.name && (isDown ? " ↓" : " ↑")}
                  </button>
                ) : (
                  column.name
                )}
                {column.unit && <span className={classes.unit}>{column.unit}</span>}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {sorted.map((row) => (
            <tr key={rowKey(row)} data-marked={isMarked?.(row) || undefined}>
              {columns.map((column) => (
                <td
                  key={column.name}
                  data-name={column.name}
                  data-number={column.isNumber || undefined}
                  data-long={column.isLong || undefined}
                >
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function inOrder<T>(
  rows: T[],
  key: (row: T) => string | number | null | undefined,
  isDown: boolean,
): T[] {
  const sign = isDown ? -1 : 1;
  return rows.toSorted((one, other) => {
    const [a, b] = [key(one) ?? null, key(other) ?? null];
    if (a === b) return 0;
    if (a === null) return 1;
    if (b === null) return -1;
    return a < b ? -sign : sign;
  });
}
