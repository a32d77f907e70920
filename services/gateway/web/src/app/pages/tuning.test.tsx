// @vitest-environment jsdom
import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { http } from "msw";
import { expect, test, vi } from "vitest";
import { answers } from "@/testing/answers";
import { describePage } from "@/testing/page-states";
import { renderPage, setUpPlatform } from "@/testing/render-page";
import { answer, holdBack, problem, server } from "@/testing/server";

vi.mock("@/components/chart/echarts");
setUpPlatform();

const { task, experiment } = answers;
const NO_EXPERIMENTS = { ...answers.experimentsOfTask, experiments: [] };

describePage("tasks", {
  address: "/tasks",
  question: "/tasks",
  empty: { ...answers.tasks, tasks: [] },
  emptyText: "No tasks yet",
  fullTexts: ["chat-latency", "engine-that-dies", "completed", "failed"],
});

describePage("a task", {
  address: `/tasks/${task.task_id}`,
  question: "/tasks/:id/experiments",
  empty: NO_EXPERIMENTS,
  emptyText: "No experiments yet.",
  fullTexts: ["chat-latency", "experiment 1", "4 of 4", "ttft-seconds=0.005 tpot-seconds=0.001"],
});

describePage("comparison of a task's experiments", {
  address: `/tasks/${task.task_id}?tab=compare`,
  question: "/tasks/:id/experiments",
  empty: NO_EXPERIMENTS,
  emptyText: "No measurements yet",
  fullTexts: ["Throughput per GPU vs. speed per user", "Parameters and results"],
});

describePage("timeline of a task", {
  address: `/tasks/${task.task_id}?tab=timeline`,
  question: "/events",
  empty: { ...answers.events, events: [], cursor: 0 },
  emptyText: "No experiment of this task has had a GPU yet.",
  fullTexts: ["Experiments on GPUs", "GPU time breakdown"],
});

describePage("events of a task", {
  address: `/tasks/${task.task_id}?tab=events`,
  question: "/events",
  empty: { ...answers.events, events: [], cursor: 0 },
  emptyText: "No events yet.",
  fullTexts: [/task.accepted/],
});

test("a task's definition is the file that it was submitted with", async () => {
  await renderPage(`/tasks/${task.task_id}?tab=definition&format=json`);

  const file = await screen.findByRole("region", { name: "task file" });
  expect(JSON.parse(file.textContent)).toMatchObject({ task_name: "chat-latency" });
});

describePage("an experiment", {
  address: `/experiments/${experiment.experiment_id}`,
  question: "/experiments/:id",
  empty: { ...experiment, benchmark: null, gpu_monitoring: null, attempts: [], metrics: null },
  emptyText: "chat-latency #1",
  fullTexts: ["chat-latency #1", "Benchmark by level", "Result", "GPUs", "Engine", "Log"],
});

test("an experiment that waits says why, and what would start it", async () => {
  answer("/experiments/:id", {
    ...experiment,
    state: "waiting",
    finished_at: null,
    attempts: [],
    explanation: answers.explanation,
  });

  await renderPage(`/experiments/${experiment.experiment_id}`);

  const block = await screen.findByRole("region", { name: "why it is waiting" });
  expect(block.textContent).toContain("queued at 1 of 1 for 2 GPUs");
  expect(block.textContent).toContain("is held by anna");
});

test("a task that does not exist is told with the gateway's words", async () => {
  server.use(
    http.get("*/api/v1/tasks/:id", () =>
      problem(404, { code: "not_found", detail: "no task has this id" }),
    ),
  );

  await renderPage("/tasks/00000000-0000-7000-8000-000000000000");

  expect((await screen.findByRole("alert")).textContent).toContain("no task has this id");
});

test("a new task shows its plan, and can be submitted once that is there", async () => {
  const release = holdBack("/tasks/validate");
  await renderPage("/tasks/new");
  const submit = screen.getByRole<HTMLButtonElement>("button", { name: "Submit" });
  expect(submit.disabled).toBe(true);

  release();

  const plan = within(screen.getByRole("region", { name: "task plan" }));
  await waitFor(() =>
    expect(plan.getByText("experiments").closest("div")?.textContent).toBe("experiments4"),
  );
  expect(submit.disabled).toBe(false);
});

test("a new task tells which field is wrong, at the field", async () => {
  const detail = "expected a whole number of at least 1, got 0";
  const path = "$.optimization.max_parallel";
  server.use(
    http.post("*/api/v1/tasks/validate", () => problem(400, { code: "bad_request", detail, path })),
  );

  await renderPage("/tasks/new");

  const field = screen.getByLabelText("Max parallel experiments");
  await waitFor(() => expect(field.getAttribute("aria-invalid")).toBe("true"));
  expect(screen.getAllByText(detail).length).toBeGreaterThan(0);
  expect(screen.getByRole<HTMLButtonElement>("button", { name: "Submit" }).disabled).toBe(true);
});

test("a new task with a file that cannot be read says so, and keeps the text", async () => {
  await renderPage("/tasks/new");
  const file = screen.getByLabelText<HTMLTextAreaElement>("Task file");

  await userEvent.clear(file);
  await userEvent.type(file, "just words");

  expect(screen.getByText("The form is back once the file can be parsed.")).toBeTruthy();
  expect(file.value).toBe("just words");
});

test("a clone begins with the other task's definition", async () => {
  await renderPage(`/tasks/new?clone=${task.task_id}`);

  const file = await screen.findByLabelText<HTMLTextAreaElement>("Task file");
  expect(file.value).toContain("task_name: chat-latency-2");
});

test("another engine brings its first parameters, and can be taken back", async () => {
  await renderPage("/tasks/new");
  const file = screen.getByLabelText<HTMLTextAreaElement>("Task file");

  await userEvent.click(await screen.findByRole("radio", { name: /llama.cpp/ }));

  expect(file.value).toContain("base_runtime: llamacpp");
  expect(file.value).not.toContain("ttft-seconds");
  await userEvent.click(screen.getByRole("button", { name: "Undo" }));
  expect(file.value).toContain("base_runtime: simulated");
});

test("a flag is told with its form, default and meaning before it is added", async () => {
  await renderPage("/tasks/new");
  await userEvent.click(await screen.findByRole("radio", { name: /llama.cpp/ }));

  const field = screen.getByLabelText("Add a parameter");
  await userEvent.type(field, "--threads-batch");

  expect(
    screen.getByText(/an integer.*default as threads. CPU threads that read prompts/),
  ).toBeTruthy();
  await userEvent.type(field, "{Enter}");
  expect(screen.getByLabelText<HTMLTextAreaElement>("Task file").value).toContain(
    "threads-batch: []",
  );
});

test("configurations are rows of values that go together", async () => {
  await renderPage("/tasks/new");

  await userEvent.type(screen.getByLabelText("Add a parameter to the list"), "slots{Enter}");
  await userEvent.type(screen.getByLabelText("slots of row 1"), "4");
  await userEvent.click(screen.getByRole("button", { name: "Add a configuration" }));

  const file = screen.getByLabelText<HTMLTextAreaElement>("Task file");
  expect(file.value).toMatch(/configurations:\n {2}- slots: 4\n {2}- slots: 4\n/);
});

test("an engine's log is found by words and by level, on a tab of its own", async () => {
  answer("/experiments/:id/logs", {
    ...answers.log,
    attempt_id: experiment.attempts.at(-1)?.attempt_id,
    next_offset: 60,
    lines: ["INFO model loaded", "ERROR out of memory", "INFO listening"],
  });
  await renderPage(`/experiments/${experiment.experiment_id}?tab=log`);

  const log = await screen.findByRole("log");
  expect(log.textContent).toContain("listening");
  await userEvent.selectOptions(screen.getByLabelText("Least level"), "error");
  expect(log.textContent).toContain("out of memory");
  expect(log.textContent).not.toContain("listening");
  await userEvent.type(screen.getByLabelText("Find in the log"), "zzz");
  expect(log.textContent).toContain("No line has these words");
});
