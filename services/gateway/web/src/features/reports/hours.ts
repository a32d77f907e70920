import { noLessThan } from "@/lib/units";

/** GPU hours in a table: a thousandth says no more than that there were some. */
export const hoursOf = (hours: number) => noLessThan(0.001, hours);
