// @vitest-environment jsdom
import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, test, vi } from "vitest";
import type { Drift } from "@schemas/messages";
import { answers } from "@/testing/answers";
import { describePage } from "@/testing/page-states";
import { renderPage, setUpPlatform } from "@/testing/render-page";
import { answer, problem, server } from "@/testing/server";

vi.mock("@/components/chart/echarts");
setUpPlatform();

describePage("reports: usage", {
  address: "/reports",
  question: "/reports/gpu-time",
  empty: { ...answers.usage, lines: [] },
  emptyText: "No GPUs were held in this time range.",
  fullTexts: ["People", "Usage by namespace", "held by reservations", "Previous period"],
});

describePage("reports: waste", {
  address: "/reports",
  question: "/reports/waste",
  empty: { ...answers.waste, lines: [] },
  emptyText: "Everything held was used.",
  fullTexts: ["Held but hardly used", "idle; memory"],
});

describePage("reports: waits", {
  address: "/reports",
  question: "/reports/waits",
  empty: { ...answers.waits, lines: [] },
  emptyText: "No GPUs were requested in this time range.",
  fullTexts: ["Waiting times", "1, why"],
});

describePage("reports: failures", {
  address: "/reports",
  question: "/reports/failures",
  empty: { ...answers.failures, lines: [] },
  emptyText: "No failures",
  fullTexts: ["Last message", "engine exited"],
});

describePage("administration: nodes", {
  address: "/admin",
  question: "/nodes",
  empty: { ...answers.nodes, nodes: [] },
  emptyText: "No nodes yet",
  fullTexts: ["gpu-01", "in service", "Labels", "Add a server"],
});

describePage("administration: namespaces", {
  address: "/admin?tab=namespaces",
  question: "/namespaces",
  empty: { ...answers.namespaces, namespaces: [] },
  emptyText: "No namespaces yet",
  fullTexts: ["default", "Set namespace rules"],
});

describePage("administration: secrets", {
  address: "/admin?tab=secrets",
  question: "/secrets",
  empty: { ...answers.secrets, secrets: [] },
  emptyText: "No secrets yet",
  fullTexts: ["HF_TOKEN", "Set a secret"],
});

describePage("administration: datasets", {
  address: "/admin?tab=datasets",
  question: "/datasets",
  empty: { ...answers.datasets, datasets: [] },
  emptyText: "No datasets yet",
  fullTexts: ["chats.jsonl", /1,200 rows of sharegpt/, "Upload a dataset or trace"],
});

describePage("administration: audit log", {
  address: "/admin?tab=audit",
  question: "/audit",
  empty: { ...answers.audit, entries: [] },
  emptyText: "No entries",
  fullTexts: ["asked for 2 GPUs for marek", "done"],
});

describePage("administration: decisions", {
  address: "/admin?tab=decisions",
  question: "/decisions",
  empty: { ...answers.decisions, decisions: [] },
  emptyText: "No decisions recorded",
  fullTexts: ["Decision", "Replay these", /gets gpu-01: 0/],
});

test("health names what does not respond", async () => {
  const detail = "no answer from results";
  server.use(
    http.get("*/readyz", () =>
      HttpResponse.json(
        {
          title: "Unready",
          status: 503,
          code: "unavailable",
          detail,
          details: { missing: ["results"] },
        },
        { status: 503 },
      ),
    ),
  );

  await renderPage("/admin?tab=health");

  const services = within(await screen.findByRole("list", { name: "Services" }));
  expect(services.getByText("results").parentElement?.textContent).toContain("not responding");
  expect(services.getByText("scheduler").parentElement?.textContent).toContain("answers");
  expect(screen.getByText(/no answer from results/)).toBeTruthy();
});

test("health says that the gateway itself does not respond", async () => {
  server.use(http.get("*/readyz", () => HttpResponse.error()));

  await renderPage("/admin?tab=health");

  expect((await screen.findByRole("alert")).textContent).toContain("gateway cannot be reached");
});

test("drifts are listed with what is done about them, or there are none", async () => {
  await renderPage("/admin?tab=drift");
  expect(await screen.findByText("No drift")).toBeTruthy();
});

test("a drift is told with its node, its action and its details", async () => {
  const drift: Drift = {
    drift_id: "01a2201a-0651-73ee-b7e8-3a53a0000000",
    drift: "squatter",
    node_id: "gpu-01",
    since_at: "2026-01-01T00:00:00Z",
    age_seconds: 60,
    action: "avoid",
    detail: "process 7 (python) has 3 GiB on GPU 0",
    device_uuid: null,
    reservation_id: null,
    pids: [7],
    ended_at: null,
  };
  answer("/drifts", { ...answers.drifts, drifts: [{ ...drift }] });

  await renderPage("/admin?tab=drift");

  expect(await screen.findByText("squatter")).toBeTruthy();
  expect(screen.getByText(drift.detail)).toBeTruthy();
});

test("tokens are listed, or it is said what it means that there are none", async () => {
  await renderPage("/admin?tab=tokens");
  expect(await screen.findByText(/^No tokens yet/)).toBeTruthy();
});

test("a viewer is told what others may, and sees no tokens", async () => {
  answer("/me", { ...answers.me, role: "viewer" });

  await renderPage("/admin");

  expect(await screen.findByText(/You are here as a viewer of default/)).toBeTruthy();
  expect(screen.queryByRole("tab", { name: "Tokens" })).toBeNull();
});

test("an unknown address says where to go", async () => {
  await renderPage("/no-such-page");

  expect(screen.getByText("Page not found")).toBeTruthy();
  expect(screen.getByText("Use the navigation on the left.")).toBeTruthy();
});

test("who is not logged in is asked for a token", async () => {
  server.use(
    http.get("*/api/v1/me", () =>
      problem(401, { code: "unauthenticated", detail: "a token is needed" }),
    ),
  );

  await renderPage("/");

  expect(await screen.findByLabelText("Token")).toBeTruthy();
  expect(screen.getByRole<HTMLButtonElement>("button", { name: "Log in" }).disabled).toBe(true);
});

test("a secret is set with a value that the page keeps nowhere", async () => {
  const sent: { path: string; body: unknown }[] = [];
  server.use(
    http.post("*/api/v1/secrets/:name", async ({ request }) => {
      sent.push({ path: new URL(request.url).pathname, body: await request.json() });
      return HttpResponse.json(answers.secrets.secrets[0]);
    }),
  );
  const user = userEvent.setup();
  await renderPage("/admin?tab=secrets");

  await user.click(await screen.findByRole("button", { name: "Replace HF_TOKEN" }));
  await user.type(await screen.findByLabelText(/^Value/), "planted");
  await user.click(screen.getByRole("button", { name: "Set" }));

  await waitFor(() => {
    expect(screen.queryByRole("dialog")).toBeNull();
  });
  expect(sent).toEqual([{ path: "/api/v1/secrets/HF_TOKEN", body: { value: "planted" } }]);
  expect(document.body.innerHTML).not.toContain("planted");
});

test("a dataset is uploaded, and refused where it is too large", async () => {
  const sent: string[] = [];
  server.use(
    http.post("*/api/v1/datasets", async ({ request }) => {
      sent.push(new URL(request.url).search, await request.text());
      return HttpResponse.json(answers.datasets.datasets[0], { status: 201 });
    }),
  );
  const user = userEvent.setup();
  answer("/datasets", { ...answers.datasets, max_bytes: 10 });
  await renderPage("/admin?tab=datasets");
  await screen.findByText(/used$/);
  const input = document.querySelector<HTMLInputElement>("input[type=file]");

  await user.upload(input as HTMLInputElement, new File(["more than ten"], "large.txt"));
  await screen.findByText(/large.txt is larger than/);
  expect(sent).toEqual([]);
  await user.upload(input as HTMLInputElement, new File(["why"], "a.txt"));

  expect(await screen.findByText(/Uploaded chats.jsonl: 1,200 rows/)).toBeTruthy();
  expect(sent[0]).toContain("name=a.txt");
  expect(screen.queryByText(/large.txt/)).toBeNull();
});

test("a dataset in use is removed once its tasks were named", async () => {
  const forces: (string | null)[] = [];
  server.use(
    http.delete("*/api/v1/datasets/:name", ({ request }) => {
      const force = new URL(request.url).searchParams.get("force");
      forces.push(force);
      return force === "true"
        ? HttpResponse.json({ command_id: "0190" })
        : problem(409, { code: "conflict", detail: "unfinished tasks use it: tune" });
    }),
  );
  const user = userEvent.setup();
  await renderPage("/admin?tab=datasets");

  await user.click(await screen.findByRole("button", { name: "Remove chats.jsonl" }));
  await user.click(screen.getByRole("button", { name: "Remove" }));
  await screen.findByText(/unfinished tasks use it: tune/);
  await user.click(screen.getByRole("button", { name: "Remove, and let these tasks fail" }));

  await waitFor(() => {
    expect(screen.queryByRole("dialog")).toBeNull();
  });
  expect(forces).toEqual(["false", "true"]);
});

test("refused sign-ins are told with their number and reason", async () => {
  const [entry] = answers.audit.entries;
  answer("/audit", {
    ...answers.audit,
    entries: [
      { ...entry, kind: "refused", caller: "", count: 40, reason: "an unknown token", after: null },
    ],
  });

  await renderPage("/admin?tab=audit");

  expect(await screen.findByText(/refused 40 times, an unknown token/)).toBeTruthy();
});
