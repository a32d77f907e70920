import { Button } from "@mantine/core";
import { useRef, useState } from "react";
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
        aria-label={`Copy ${label}`}
        onClick={() => void copy()}
      >
        {isCopied ? "Copied" : "Copy"}
      </Button>
    </div>
  );
}

/** False where the browser forbids it; the text is selected then, for the keyboard. */
async function copyToClipboard(text: string, element: HTMLElement | null): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // `navigator.clipboard` is there over HTTPS and on loopback alone.
  }
  if (element === null) return false;
  getSelection()?.selectAllChildren(element);
  // eslint-disable-next-line @typescript-eslint/no-deprecated -- the one way without HTTPS
  return document.execCommand("copy");
}
