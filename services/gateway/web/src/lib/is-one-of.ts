/** Whether a text is a value of an enum of the schemas. */
export function isOneOf<T extends string>(values: readonly T[], text: string): text is T {
  return (values as readonly string[]).includes(text);
}
