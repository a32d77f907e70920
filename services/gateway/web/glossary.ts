import { readFileSync } from "node:fs";
import type { Plugin } from "vite";

const ROW = /^\| \*\*(.+?)\*\* \| (.+) \|$/gm;

/** Words and meanings of the tables of a Markdown page; "cordon, uncordon" are two. */
export function termsIn(page: string): Record<string, string> {
  const terms = [...page.matchAll(ROW)].flatMap(([, words = "", meaning = ""]) =>
    words.split(", ").map((word) => [word.toLowerCase(), plain(meaning)] as const),
  );
  return Object.fromEntries(terms);
}

/** Without links, emphasis and code. */
function plain(markdown: string): string {
  return markdown.replace(/\[([^\]]+)\]\([^)]+\)/g, "$1").replace(/[*`]/g, "");
}

/** `virtual:glossary`: the glossary of the documentation, which alone has the words. */
export function glossary(path: string): Plugin {
  const id = "virtual:glossary";
  return {
    name: "glossary",
    resolveId: (source) => (source === id ? `\0${id}` : undefined),
    load(source) {
      if (source !== `\0${id}`) return undefined;
      this.addWatchFile(path);
      return `export default ${JSON.stringify(termsIn(readFileSync(path, "utf8")))}`;
    },
  };
}
