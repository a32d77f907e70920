import { t } from "@lingui/core/macro";
import { Button } from "@mantine/core";
import { useRef, useState } from "react";
import { copyToClipboard } from "@/lib/clipboard";
import classes from "./copy-text.module.css";

const COPIED_MS = 1_500;

/** A line to type elsewhere, whole on copying even where it is cut here. */
export function CopyText({ text, label }: { text: string; label: string }) {
  const line = useRef<HTMLElement>(null);
  const [isCopied, setCopied] = useState(false);

  async function copy(): Promise<void> {
    if (!(await copyToClipboard(text, line.current))) return;
    setCopied(true);
    setTimeout(() => setCopied(false), COPIED_MS);
  }

  return (
    <div className={classes.line}>
      <code ref={line} className={classes.text} title={text}>
        {text}
      </code>
      <Button
        size="compact-xs"
        variant="default"
        aria-label={t`Copy ${label}`}
        onClick={() => void copy()}
      >
        {isCopied ? t`Copied` : t`Copy`}
      </Button>
    </div>
  );
}
