import { useSyncExternalStore } from "react";
import { loadPart } from "@/lib/parts";

type Terms = Record<string, string>;

let terms: Terms = {};
const listeners = new Set<() => void>();

/** The glossary comes after the first page is drawn: until then no word has a meaning. */
export const loadedTerms = loadPart(() => import("virtual:glossary"), { waits: true }).then(
  (glossary) => {
    terms = glossary.default;
    listeners.forEach((listener) => listener());
  },
);

/** What the glossary says of a word, of its singular, or of its first one: "Coverage", "GPUs", "ttft, mean". */
function meaningIn(glossary: Terms, words: string): string | undefined {
  const word = words.toLowerCase().split(/[,(]/)[0]?.trim() ?? "";
  return glossary[word] ?? glossary[word.replace(/s$/, "")];
}

export const meaningOf = (words: string) => meaningIn(terms, words);

/** Finds the meaning of a word, again once the glossary is there. */
export function useMeanings(): (words: string) => string | undefined {
  const glossary = useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => terms,
  );
  return (words) => meaningIn(glossary, words);
}
