import terms from "virtual:glossary";

/** What the glossary says of a word, of its singular, or of its first one: "Coverage", "GPUs", "ttft, mean". */
export function meaningOf(words: string): string | undefined {
  const word = words.toLowerCase().split(/[,(]/)[0]?.trim() ?? "";
  return terms[word] ?? terms[word.replace(/s$/, "")];
}
