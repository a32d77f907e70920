import type { UsageLine } from "@schemas/messages";
import type { Column } from "@/components/data-table";
import { hoursOf } from "./hours";

/** A column of hours or of money, written and sorted as numbers. */
export function amountColumn(
  name: string,
  unit: string,
  amountOf: (line: UsageLine) => number | null,
): Column<UsageLine> {
  return {
    name,
    unit,
    isNumber: true,
    sortBy: amountOf,
    cell: (line) => hoursOf(amountOf(line)),
  };
}
