import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button } from "@mantine/core";
import { useRef, useState, type ReactNode } from "react";
import { download } from "@/lib/csv";
import { copyToClipboard } from "@/lib/clipboard";
import { highlighted } from "./highlighted";
import classes from "./code-block.module.css";

const COPIED_MS = 1_500;

interface CodeBlockProps {
  text: string;
  label: string;
  /** Of the file that it can be saved as; without one it is not offered. */
  fileName?: string;
  /** Beside its buttons. */
  choices?: ReactNode;
}

/** A file to read, copy or save; keys, texts, numbers and comments of YAML and JSON are told apart. */
export function CodeBlock({ text, label, fileName, choices }: CodeBlockProps) {
  const block = useRef<HTMLPreElement>(null);
  const [isCopied, setCopied] = useState(false);

  async function copy(): Promise<void> {
    if (!(await copyToClipboard(text, block.current))) return;
    setCopied(true);
    setTimeout(() => setCopied(false), COPIED_MS);
  }

  return (
    <div>
      <div className={classes.tools}>
        {choices}
        <Button
          size="xs"
          variant="default"
          aria-label={t`Copy ${label}`}
          onClick={() => void copy()}
        >
          {isCopied ? <Trans>Copied</Trans> : <Trans>Copy</Trans>}
        </Button>
        {fileName !== undefined && (
          <Button
            size="xs"
            variant="default"
            aria-label={t`Save as file: ${label}`}
            onClick={() => download(fileName, text, "text/plain")}
          >
            <Trans>Save as file</Trans>
          </Button>
        )}
      </div>
      {/* Keyboards scroll it too. */}
      <pre ref={block} className={classes.file} tabIndex={0} role="region" aria-label={label}>
        {highlighted(text)}
      </pre>
    </div>
  );
}
