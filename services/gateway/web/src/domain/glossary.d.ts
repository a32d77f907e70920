declare module "virtual:glossary" {
  const terms: Record<string, string>;
  export default terms;
}
