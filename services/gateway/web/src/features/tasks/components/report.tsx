import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import Markdown from "markdown-to-jsx";
import type { TaskView } from "@schemas/messages";
import { Loaded } from "@/components/page";
import { download } from "@/lib/csv";
import { reportOptions } from "../api/get-report";
import classes from "./report.module.css";

/** Best configuration, what made the difference, how to run it: for a wiki, a ticket, a merge request. */
export default function Report({ task }: { task: TaskView }) {
  const report = useQuery(reportOptions(task.task_id));
  return (
    <Loaded query={report}>
      {(text) => (
        <>
          <Button
            size="xs"
            variant="default"
            onClick={() => download(`${task.task_name}.md`, text, "text/markdown")}
          >
            <Trans>Download as Markdown</Trans>
          </Button>
          <article className={classes.report} aria-label={t`report`}>
            <ReportText text={text} />
          </article>
        </>
      )}
    </Loaded>
  );
}

/** The page has one title; tags in names that people chose stay text. */
export function ReportText({ text }: { text: string }) {
  return (
    <Markdown
      options={{
        disableParsingRawHTML: true,
        forceBlock: true,
        overrides: { h1: Title, h2: Section, table: ReportTable },
      }}
    >
      {text}
    </Markdown>
  );
}

function Title({ children }: React.ComponentProps<"h1">) {
  return <h2>{children}</h2>;
}

function Section({ children }: React.ComponentProps<"h2">) {
  return <h3>{children}</h3>;
}

function ReportTable(props: React.ComponentProps<"table">) {
  return (
    <div className={classes.scroll} tabIndex={0} role="region" aria-label={t`table`}>
      <table {...props} />
    </div>
  );
}
