import type { ReactNode } from "react";
import classes from "./code-block.module.css";

/** A key with its colon, a text, a number or a word of the language, a comment. */
const PARTS =
  /(?<key>"(?:[^"\\\n]|\\.)*"(?=\s*:)|(?<=^[ \t-]*|[{,]\s*)[\w./-]+(?=:(?:\s|$)))|(?<text>"(?:[^"\\\n]|\\.)*"|(?<![\w])'[^'\n]*')|(?<comment>(?<=^|\s)#.*$)|(?<number>(?<=[:[,-]\s+|[[,]|^\s*)(?:-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|true|false|null)(?=\s*(?:[,\]}]|$)))/gim;

const KINDS = ["key", "text", "comment", "number"];

/** More is plain: marking it takes longer than reading it is worth. */
const MOST = 100_000;

export function highlighted(text: string): ReactNode {
  if (text.length > MOST) return text;
  const parts: ReactNode[] = [];
  let end = 0;
  for (const match of text.matchAll(PARTS)) {
    const kind = KINDS.find((name) => match.groups?.[name]);
    if (match.index > end) parts.push(text.slice(end, match.index));
    parts.push(
      <span key={match.index} className={kind && classes[kind]}>
        {match[0]}
      </span>,
    );
    end = match.index + match[0].length;
  }
  return [...parts, text.slice(end)];
}
