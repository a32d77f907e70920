/** Of hours and costs, two decimals: a hundredth says no more than that there was some. */
const TWO_DECIMALS = new Intl.NumberFormat("en-US", {
  minimumFractionDigits: 2,
  maximumFractionDigits: 2,
});
const LEAST = 0.005;

export function hoursOf(hours: number | null | undefined): string {
  if (hours === null || hours === undefined) return "–";
  return hours > 0 && hours < LEAST ? "< 0.01" : TWO_DECIMALS.format(hours);
}
