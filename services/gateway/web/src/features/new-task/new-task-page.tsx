import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button, FileButton, SegmentedControl, Textarea } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useNavigate, useSearchParams } from "react-router";
import { Failure, Loaded, Page } from "@/components/page";
import { ApiError } from "@/lib/api-client";
import { taskOptions } from "@/lib/api/get-task";
import { paths } from "@/lib/paths";
import { useMe } from "@/lib/api/get-me";
import { useNamespace, useSharedSearch } from "@/lib/url-state";
import { planOptions } from "./api/get-plan";
import { useSubmitTask } from "./api/submit-task";
import { DraftForm } from "./components/draft-form";
import { PlanSummary } from "./components/plan-summary";
import { cloneOf, FIRST_DRAFT, formatOf, readDraft, writeDraft, type Draft } from "./draft";
import classes from "./new-task-page.module.css";

export function NewTaskPage() {
  const [parameters] = useSearchParams();
  const cloned = useQuery(taskOptions(parameters.get("clone")));
  if (!parameters.get("clone")) return <Editor key="new" first={FIRST_DRAFT} />;
  return (
    <Loaded query={cloned}>
      {(task) => <Editor key={task.task_id} first={task.task ? cloneOf(task.task) : FIRST_DRAFT} />}
    </Loaded>
  );
}

const SETTLE_MS = 400;

function Editor({ first }: { first: Draft }) {
  const navigate = useNavigate();
  const search = useSharedSearch();
  const me = useMe();
  const [namespace] = useNamespace();
  // The text is the truth: the form reads it and writes it anew.
  const [text, setText] = useState(() => writeDraft(first, "yaml"));
  const read = readDraft(text);
  const format = formatOf(text);
  const [settled] = useDebouncedValue(text, SETTLE_MS);
  // Before it is known who asks, there is no word that a login's changes have to carry.
  const plan = useQuery(planOptions(me ? readDraft(settled).draft : null, namespace));
  const problem = plan.error instanceof ApiError ? plan.error.problem : null;
  const submission = useSubmitTask(
    namespace,
    (task) => void navigate({ pathname: paths.task(task.task_id), search }),
  );
  const mayNot = me?.role === "viewer" ? t`Your token is read-only` : null;
  const isReady = plan.data !== undefined && plan.data.missing.length === 0 && settled === text;
  return (
    <Page
      title={t`New task`}
      actions={
        <Button
          size="xs"
          disabled={!isReady || mayNot !== null}
          title={mayNot ?? undefined}
          loading={submission.isPending}
          onClick={() => read.draft && submission.mutate(read.draft)}
        >
          <Trans>Submit</Trans>
        </Button>
      }
    >
      {mayNot && (
        <p className="dim">
          <Trans>{mayNot}: only a submitter or an admin can submit tasks.</Trans>
        </p>
      )}
      {submission.error && <Failure error={submission.error} />}
      <div className={classes.columns}>
        <div>
          {read.draft ? (
            <DraftForm
              draft={read.draft}
              problem={problem}
              onChange={(draft) => setText(writeDraft(draft, format))}
            />
          ) : (
            <p className="dim">
              <Trans>The form is back once the file can be parsed.</Trans>
            </p>
          )}
        </div>
        <div className={classes.side}>
          <PlanSummary plan={plan} draft={read.draft} isSettled={settled === text} />
          <div className={classes.tools}>
            <SegmentedControl
              size="xs"
              aria-label={t`File format`}
              data={[
                { value: "yaml", label: "YAML" },
                { value: "json", label: "JSON" },
              ]}
              value={format}
              onChange={(value) => read.draft && setText(writeDraft(read.draft, value))}
            />
            <FileButton
              accept=".json,.yaml,.yml"
              onChange={(file) => void file?.text().then(setText)}
            >
              {(props) => (
                <Button size="xs" variant="default" {...props}>
                  <Trans>Open file</Trans>
                </Button>
              )}
            </FileButton>
          </div>
          <Textarea
            aria-label={t`Task file`}
            autosize
            minRows={16}
            maxRows={36}
            spellCheck={false}
            value={text}
            error={read.error}
            onChange={(event) => setText(event.currentTarget.value)}
            styles={{ input: { fontFamily: "ui-monospace, Consolas, monospace", fontSize: 12 } }}
          />
        </div>
      </div>
    </Page>
  );
}
