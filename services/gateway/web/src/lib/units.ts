/** Numbers as people read them: three significant digits, a dash for what is unknown. */

export const UNKNOWN = "–";

// By the digits after the point. One is slow to make, and thousands of numbers are drawn at once.
const FORMATS: Intl.NumberFormat[] = [];
const format = (digits: number) =>
  new Intl.NumberFormat("en-US", { maximumFractionDigits: digits });

export type Maybe = number | null | undefined;

/** Three significant digits where more do not matter: 0.123, 1.23, 12.3, 123, 1,234. */
export function number(value: Maybe): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return UNKNOWN;
  if (value === 0) return "0";
  const digits = Math.min(6, Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value)))));
  return (FORMATS[digits] ??= format(digits)).format(value);
}

const ALIGNED: Intl.NumberFormat[] = [];

/** As `number`, in a column of measurements: 3.70 under 3.69, so that points lie under each other. */
export function alignedNumber(value: Maybe): string {
  if (!value || !Number.isFinite(value) || Math.abs(value) >= 1000) return number(value);
  const digits = Math.min(6, Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value)))));
  return (ALIGNED[digits] ??= new Intl.NumberFormat("en-US", {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  })).format(value);
}

export function whole(value: Maybe): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return UNKNOWN;
  const rounded = Math.round(value);
  return Math.abs(rounded) < 1000 ? String(rounded) : number(rounded);
}

export function withUnit(text: string, unit: string): string {
  return text === UNKNOWN ? text : `${text}\u202f${unit}`;
}

export function percent(value: Maybe): string {
  return withUnit(whole(value), "%");
}

export function watts(value: Maybe): string {
  if (value !== null && value !== undefined && Math.abs(value) >= 10_000) {
    return withUnit(alignedNumber(value / 1000), "kW");
  }
  return withUnit(whole(value), "W");
}

export function megahertz(value: Maybe): string {
  return withUnit(whole(value), "MHz");
}

export function celsius(value: Maybe): string {
  return withUnit(whole(value), "°C");
}

/** Of mebibytes, as drivers count them; to a tenth, where that is not nothing. */
export function gibibytes(mebibytes: Maybe): string {
  if (mebibytes === null || mebibytes === undefined) return UNKNOWN;
  const gib = mebibytes / 1024;
  return withUnit(number(gib < 0.1 ? gib : Math.round(gib * 10) / 10), "GiB");
}

/** Of hours or percents, where a thousandth says no more than that there was some. */
export function noLessThan(least: number, value: Maybe): string {
  return value && value > 0 && value < least ? `< ${number(least)}` : number(value);
}

export function share(part: Maybe, total: Maybe): number | null {
  if (part === null || part === undefined || !total) return null;
  return Math.min(1, Math.max(0, part / total));
}
