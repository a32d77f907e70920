import { Button, CopyButton } from "@mantine/core";
import classes from "./copy-text.module.css";

/** A line to type elsewhere, whole on copying even where it is cut here. */
export function CopyText({ text, label }: { text: string; label: string }) {
  return (
    <div className={classes.line}>
      <code className={classes.text} title={text}>
        {text}
      </code>
      <CopyButton value={text}>
        {({ copied, copy }) => (
          <Button size="compact-xs" variant="default" aria-label={`Copy ${label}`} onClick={copy}>
            {copied ? "Copied" : "Copy"}
          </Button>
        )}
      </CopyButton>
    </div>
  );
}
