import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import {
  Autocomplete,
  Button,
  NativeSelect,
  NumberInput,
  PasswordInput,
  Textarea,
  TextInput,
} from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useNavigate } from "react-router";
import type { ServerAddress } from "@schemas/messages";
import { Failure, Page } from "@/components/page";
import { ApiError } from "@/lib/api-client";
import { useMe } from "@/lib/api/get-me";
import { nodesOptions } from "@/lib/api/get-nodes";
import { paths } from "@/lib/paths";
import { useNamespace, useSharedSearch } from "@/lib/url-state";
import { planOptions } from "./api/get-plan";
import { useListServedModels } from "./api/list-served-models";
import { useSubmitTask } from "./api/submit-task";
import { errorOf, ListText } from "./components/fields";
import { PlanSummary } from "./components/plan-summary";
import { TryServer } from "./components/try-server";
import { FIRST_MEASUREMENT, measurementDraft, nameFor, urlsOf, type Measurement } from "./measure";
import classes from "./new-task-page.module.css";

const SETTLE_MS = 400;
const numbersIn = (values: unknown[]) =>
  values.filter((value): value is number => typeof value === "number");

/** Measure a server that runs already, and try it before. */
export function MeasurePage() {
  const navigate = useNavigate();
  const search = useSharedSearch();
  const me = useMe();
  const [namespace] = useNamespace();
  const [form, setForm] = useState<Measurement>(FIRST_MEASUREMENT);
  const [key, setKey] = useState("");
  const [from, setFrom] = useState("");
  const [models, setModels] = useState<string[]>([]);
  const set = (changes: Partial<Measurement>) => setForm({ ...form, ...changes });
  const draft = measurementDraft(form);
  const [settled] = useDebouncedValue(form, SETTLE_MS);
  const plan = useQuery(planOptions(me ? measurementDraft(settled) : null));
  const problem = plan.error instanceof ApiError ? plan.error.problem : null;
  const nodes = useQuery(nodesOptions).data?.filter((node) => node.fresh) ?? [];
  const asking = from || form.node || nodes[0]?.node_id || "";
  const [url] = urlsOf(form.urls);
  const server: ServerAddress | null = url ? { url, api_key: key || null } : null;
  const listing = useListServedModels((names) => {
    setModels(names);
    const [first] = names;
    if (first && !names.includes(form.model)) set({ model: first });
  });
  const submission = useSubmitTask(
    namespace,
    (task) => void navigate({ pathname: paths.task(task.task_id), search }),
  );
  const mayNot = me?.role === "viewer" ? t`Your token is read-only` : null;
  const isReady = plan.data?.missing.length === 0 && settled === form;
  const most = Math.max(0, ...form.concurrencies);
  return (
    <Page
      title={t`Measure a running server`}
      actions={
        <Button
          size="xs"
          disabled={!isReady || mayNot !== null}
          title={mayNot ?? undefined}
          loading={submission.isPending}
          onClick={() => draft && submission.mutate(draft)}
        >
          <Trans>Measure</Trans>
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
        <form
          className={classes.side}
          onSubmit={(event) => {
            event.preventDefault();
            if (server) listing.mutate({ nodeId: asking, body: server });
          }}
        >
          <Textarea
            size="xs"
            autosize
            minRows={1}
            label={t`Address of the server`}
            description={t`Before /v1; several on a line each, to compare them`}
            placeholder="http://gpu-01:8000"
            value={form.urls}
            error={errorOf({ problem, path: "endpoint.url" })}
            onChange={(event) => set({ urls: event.currentTarget.value })}
          />
          <NativeSelect
            size="xs"
            label={t`Try it from node`}
            data={nodes.map((node) => node.node_id)}
            value={asking}
            onChange={(event) => setFrom(event.currentTarget.value)}
          />
          <PasswordInput
            size="xs"
            label={t`Key to try it with`}
            description={t`Sent to the server alone, and stored nowhere`}
            autoComplete="off"
            value={key}
            onChange={(event) => setKey(event.currentTarget.value)}
          />
          <div className={classes.tools}>
            <Button
              size="xs"
              type="submit"
              variant="default"
              loading={listing.isPending}
              disabled={!server || !asking || mayNot !== null}
            >
              <Trans>Find its models</Trans>
            </Button>
          </div>
          {listing.error && <Failure error={listing.error} />}
          <Autocomplete
            size="xs"
            label={t`Model`}
            data={models}
            value={form.model}
            error={errorOf({ problem, path: "model.id_or_path" })}
            onChange={(model) => set({ model })}
          />
          <TextInput
            size="xs"
            label={t`Task name`}
            placeholder={nameFor(form.model)}
            value={form.name}
            error={errorOf({ problem, path: "task_name" })}
            onChange={(event) => set({ name: event.currentTarget.value })}
          />
          <TextInput
            size="xs"
            label={t`Secret with the server's key`}
            description={t`Name of a secret of the namespace; empty: it asks for no key`}
            placeholder="SERVER_KEY"
            value={form.secret}
            error={errorOf({ problem, path: "endpoint.api_key" })}
            onChange={(event) => set({ secret: event.currentTarget.value.trim() })}
          />
          <NativeSelect
            size="xs"
            label={t`Runs on node`}
            description={t`Its GPUs are watched meanwhile`}
            data={[{ value: "", label: t`not a node of this fleet` }].concat(
              nodes.map((node) => ({ value: node.node_id, label: node.node_id })),
            )}
            value={form.node}
            onChange={(event) => set({ node: event.currentTarget.value })}
          />
          {form.node && (
            <ListText
              label={t`GPUs of the node`}
              description={t`By index, as in 0, 1; empty: all`}
              values={form.gpuIndices}
              error={errorOf({ problem, path: "endpoint.gpu_indices" })}
              onChange={(values) => set({ gpuIndices: numbersIn(values) })}
            />
          )}
          <TextInput
            size="xs"
            label={t`Traffic`}
            description={t`D(tokens in, tokens out)`}
            value={form.scenario}
            error={errorOf({ problem, path: "benchmark.traffic_scenarios" })}
            onChange={(event) => set({ scenario: event.currentTarget.value })}
          />
          <ListText
            label={t`Requests at once`}
            description={t`Each is a load, one after the other`}
            values={form.concurrencies}
            error={errorOf({ problem, path: "benchmark.num_concurrency" })}
            onChange={(values) => set({ concurrencies: numbersIn(values) })}
          />
          <NumberInput
            size="xs"
            min={1}
            label={t`Most requests in flight`}
            description={t`A task with more is refused`}
            value={form.maxConcurrency ?? ""}
            error={errorOf({ problem, path: "endpoint.max_concurrency" })}
            onChange={(value) => set({ maxConcurrency: typeof value === "number" ? value : null })}
          />
          <NumberInput
            size="xs"
            min={0}
            label={t`Minutes for each load`}
            value={form.minutes ?? ""}
            error={errorOf({ problem, path: "benchmark.max_time_per_iteration" })}
            onChange={(value) => set({ minutes: typeof value === "number" ? value : null })}
          />
          <NumberInput
            size="xs"
            min={1}
            label={t`Requests for each load`}
            value={form.requests ?? ""}
            error={errorOf({ problem, path: "benchmark.max_requests_per_iteration" })}
            onChange={(value) => set({ requests: typeof value === "number" ? value : null })}
          />
        </form>
        <div className={classes.side}>
          {draft ? (
            <>
              <p>
                <Trans>
                  The server gets up to {most} requests at once. It is neither started nor stopped.
                </Trans>
              </p>
              <PlanSummary plan={plan} draft={draft} isSettled={settled === form} />
            </>
          ) : (
            <p className="dim">
              <Trans>Give the address of a server, and find its models.</Trans>
            </p>
          )}
          {server && form.model && asking && mayNot === null && (
            <TryServer nodeId={asking} server={server} model={form.model} />
          )}
        </div>
      </div>
    </Page>
  );
}
