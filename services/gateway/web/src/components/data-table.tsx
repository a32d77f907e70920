import { Trans } from "@lingui/react/macro";
import { Button } from "@mantine/core";
import { useMemo, useState, type MouseEvent, type ReactNode } from "react";
import { useNavigate, type To } from "react-router";
import { useMeanings } from "@/domain/terms";
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
  /** The sum of all rows, below them whatever their order is. */
  total?: T;
  /** Rows that stand below one, in their own order, while it is unfolded. */
  below?: (row: T) => T[];
  /** Where a press anywhere on a row leads; a link of the row itself stays for the keyboard. */
  rowLink?: (row: T) => To;
}

/** More rows are drawn when somebody asks: thousands at once make a page slow. */
const ROWS_A_STEP = 300;
const NOTHING_BELOW = () => [];

/** Dense, sortable by its headers; the order is part of the address. On a phone each row is a card. */
export function DataTable<T>({
  label,
  columns,
  rows,
  rowKey,
  isMarked,
  firstOrder = "",
  empty,
  total,
  below = NOTHING_BELOW,
  rowLink,
}: DataTableProps<T>) {
  const navigate = useNavigate();
  const meaningOf = useMeanings();
  const [most, setMost] = useState(ROWS_A_STEP);
  const [order, setOrder] = useUrlState(
    `sort-${label.toLowerCase().replaceAll(/[^\p{L}]+/gu, "-")}`,
    firstOrder,
  );
  const isDown = order.startsWith("-");
  const by = isDown ? order.slice(1) : order;
  const sorted = useMemo(() => {
    const key = columns.find((column) => column.name === by)?.sortBy;
    return key ? inOrder(rows, key, isDown) : rows;
  }, [by, columns, isDown, rows]);
  const shown = sorted
    .slice(0, most)
    .flatMap((row) => [
      { row, isBelow: false },
      ...below(row).map((nested) => ({ row: nested, isBelow: true })),
    ]);
  const press = (event: MouseEvent, row: T) => {
    const isHandled = (event.target as HTMLElement).closest("a, button, input, label, summary");
    if (!rowLink || isHandled || getSelection()?.isCollapsed === false) return;
    void navigate(rowLink(row));
  };
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
                    <span aria-hidden="true" className={classes.arrow}>
                      {by === column.name ? (isDown ? "↓" : "↑") : "↕"}
                    </span>
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
          {shown.map(({ row, isBelow }) => (
            <tr
              key={rowKey(row)}
              data-marked={isMarked?.(row) || undefined}
              data-below={isBelow || undefined}
              data-pressable={rowLink ? true : undefined}
              onClick={(event) => press(event, row)}
            >
              <Cells columns={columns} row={row} />
            </tr>
          ))}
        </tbody>
        {total !== undefined && (
          <tfoot>
            <tr>
              <Cells columns={columns} row={total} />
            </tr>
          </tfoot>
        )}
      </table>
      {sorted.length > most && (
        <p>
          <Button size="xs" variant="default" onClick={() => setMost(most + ROWS_A_STEP)}>
            <Trans>
              Show {Math.min(ROWS_A_STEP, sorted.length - most)} more of {sorted.length}
            </Trans>
          </Button>
        </p>
      )}
    </div>
  );
}

function Cells<T>({ columns, row }: { columns: Column<T>[]; row: T }) {
  return columns.map((column) => (
    <td
      key={column.name}
      data-name={column.name}
      data-number={column.isNumber || undefined}
      data-long={column.isLong || undefined}
    >
      {column.cell(row)}
    </td>
  ));
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
