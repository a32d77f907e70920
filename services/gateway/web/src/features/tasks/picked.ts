import { useCallback } from "react";
import { useUrlState } from "@/lib/url-state";

export const MOST_PICKED = 6;

/** In the address: nobody is picked, also not those that a page would choose itself. */
const NOBODY = "none";

/**
 * Experiments chosen to be compared, shared by table and charts, and part of the address. While nobody chose, they are
 * `suggested`.
 */
export function usePicked(suggested: string[] = []) {
  const [text, setText] = useUrlState("picked", "");
  const suggestedText = suggested.join(",");
  const pickedText = text === NOBODY ? "" : text || suggestedText;
  const toggle = useCallback(
    (id: string) => {
      const before = pickedText ? pickedText.split(",") : [];
      const after = before.includes(id) ? before.filter((other) => other !== id) : [...before, id];
      setText(after.slice(-MOST_PICKED).join(",") || NOBODY);
    },
    [pickedText, setText],
  );
  return {
    picked: pickedText ? pickedText.split(",") : [],
    isSuggested: text === "" && suggestedText !== "",
    toggle,
    clear: () => setText(NOBODY),
    reset: () => setText(""),
  };
}
