import { useCallback } from "react";
import { useUrlState } from "@/lib/url-state";

export const MOST_PICKED = 6;

/** Experiments chosen to be compared, shared by table and charts, and part of the address. */
export function usePicked() {
  const [text, setText] = useUrlState("picked", "");
  const picked = text ? text.split(",") : [];
  const toggle = useCallback(
    (id: string) => {
      const before = text ? text.split(",") : [];
      const after = before.includes(id) ? before.filter((other) => other !== id) : [...before, id];
      setText(after.slice(-MOST_PICKED).join(","));
    },
    [setText, text],
  );
  return { picked, toggle, clear: () => setText("") };
}
