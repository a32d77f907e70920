import { Tooltip } from "@mantine/core";
import { useMeanings } from "@/domain/terms";
import classes from "./term.module.css";

/** A word that the glossary has, with its meaning on hover, on focus and on touch. */
export function Term({ children }: { children: string }) {
  const meaning = useMeanings()(children);
  if (!meaning) return children;
  return (
    <Tooltip
      label={meaning}
      multiline
      maw={360}
      withArrow
      events={{ hover: true, focus: true, touch: true }}
    >
      <button type="button" className={classes.term}>
        {children}
      </button>
    </Tooltip>
  );
}
