// @vitest-environment jsdom
import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, test, vi } from "vitest";
import { answers } from "@/testing/answers";
import { describePage } from "@/testing/page-states";
import { renderPage, setUpPlatform } from "@/testing/render-page";
import { answer, problem, server } from "@/testing/server";

vi.mock("@/components/chart/echarts");
setUpPlatform();

const [gpu] = answers.gpus.gpus;
const NO_GPUS = { ...answers.gpus, gpus: [] };

describePage("fleet", {
  address: "/",
  question: "/gpus",
  empty: NO_GPUS,
  emptyText: "No GPUs yet",
  fullTexts: ["1 of 2", "held and idle today", "simulated"],
});

describePage("a GPU", {
  address: `/gpus/gpu-01/${gpu?.uuid}`,
  question: "/gpus",
  empty: NO_GPUS,
  emptyText: `No GPU ${gpu?.uuid} on node gpu-01`,
  fullTexts: [/^gpu-01 GPU 0:/, "Processes", "Past holders", "Temperature"],
});

describePage("a node", {
  address: "/nodes/gpu-01?tab=events",
  question: "/nodes/gpu-01/events",
  empty: { type: "gateway.events", cursor: 0, events: [] },
  emptyText: "Nothing has happened on this node yet.",
  fullTexts: ["Node gpu-01", "in service", "The node was cordoned: new fan"],
});

describePage("queue", {
  address: "/queue",
  question: "/reservations",
  empty: { ...answers.waiting, reservations: [] },
  emptyText: "No waiting requests",
  fullTexts: ["marek", "2 GPUs"],
});

describePage("monitoring of the fleet", {
  address: "/monitoring",
  question: "/series",
  empty: { ...answers.fleetSeries, fleet: [] },
  emptyText: "No samples: remove a filter, or choose a longer range.",
  fullTexts: ["GPU utilization, 2 GPUs", "GPU utilization by node and time"],
});

describePage("monitoring of nodes", {
  address: "/monitoring?by=node",
  question: "/series",
  empty: { ...answers.nodeSeries, nodes: [] },
  emptyText: "No samples: remove a filter, or choose a longer range.",
  fullTexts: ["GPU utilization, mean of the node's GPUs", "Nodes in this time range", "gpu-01"],
});

test("monitoring of pods says that no pod used a GPU", async () => {
  await renderPage("/monitoring?view=pods");

  const texts = await screen.findAllByText(/No matching Kubernetes pod used a GPU/);
  expect(texts.length).toBeGreaterThan(0);
});

test("a waiting request is opened for its reasons and what would help", async () => {
  await renderPage("/queue");
  await userEvent.click(await screen.findByRole("button", { name: "marek" }));

  expect(await screen.findByText(/is held by anna/, { selector: "li" })).toBeTruthy();
  expect(await screen.findByRole("button", { name: "Request that instead" })).toBeTruthy();
});

const INVITATION = {
  node_id: "gpu-09",
  code: "c0de",
  ends_at: "2030-01-01T12:00:00Z",
  command: "export GPUSTEWARD_JOIN_CODE=c0de; gpusteward join http://steward gpu-09",
};

async function inviteServer(): Promise<void> {
  await renderPage("/");
  await userEvent.click(await screen.findByRole("button", { name: "Add a server" }));
  await userEvent.type(await screen.findByLabelText(/Name of the server/), "gpu-09");
  await userEvent.click(screen.getByRole("button", { name: "Make the command" }));
}

test("an admin is shown the command that a new server joins by", async () => {
  const bodies: unknown[] = [];
  server.use(
    http.post("*/api/v1/nodes/gpu-09/invite", async ({ request }) => {
      bodies.push(await request.json());
      return HttpResponse.json(INVITATION, { status: 201 });
    }),
  );

  await inviteServer();

  expect(await screen.findByText(INVITATION.command)).toBeTruthy();
  expect(bodies).toEqual([{ api_url: window.location.origin }]);
  expect(screen.getByText(/only this machine can reach/)).toBeTruthy();
});

test("a refused invitation says why, and can be asked for again", async () => {
  const refusal = { code: "conflict", detail: "gpu-09 has credentials already" };
  server.use(http.post("*/api/v1/nodes/gpu-09/invite", () => problem(409, refusal)));

  await inviteServer();

  expect((await screen.findByRole("alert")).textContent).toContain("has credentials already");
  expect(screen.getByRole("button", { name: "Make the command" })).toBeTruthy();
});

test("a new node is admitted by its button", async () => {
  const [node, ...others] = answers.nodes.nodes;
  answer("/nodes", { ...answers.nodes, nodes: [{ ...node, admitted: false }, ...others] });
  const admitted: string[] = [];
  server.use(
    http.post("*/api/v1/nodes/:id/admit", ({ params }) => {
      admitted.push(String(params["id"]));
      return HttpResponse.json({ accepted: true }, { status: 202 });
    }),
  );

  await renderPage("/");
  await userEvent.click(await screen.findByRole("button", { name: "Admit" }));
  const dialog = await screen.findByRole("dialog");
  await userEvent.click(within(dialog).getByRole("button", { name: "Admit" }));

  await waitFor(() => expect(admitted).toEqual([node?.node_id]));
  await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
});

async function cordonFirstGpu(): Promise<void> {
  const [gpu] = answers.gpus.gpus;
  server.use(
    http.post("*/api/v1/nodes/:id/cordon", () =>
      HttpResponse.json({ accepted: true }, { status: 202 }),
    ),
  );
  await renderPage(`/gpus/${gpu?.node_id}/${gpu?.uuid}`);
  await userEvent.click(await screen.findByRole("button", { name: "Cordon" }));
  const dialog = await screen.findByRole("dialog");
  await userEvent.click(within(dialog).getByRole("button", { name: "Cordon" }));
  await screen.findByText(/^Cordoned: /);
}

test("a cordon is taken back by Undo, and both are said", async () => {
  const bodies: unknown[] = [];
  server.use(
    http.post("*/api/v1/nodes/:id/uncordon", async ({ request }) => {
      bodies.push(await request.json());
      return HttpResponse.json({ accepted: true }, { status: 202 });
    }),
  );

  await cordonFirstGpu();
  await userEvent.click(screen.getByRole("button", { name: "Undo" }));

  expect(await screen.findByText(/^Back in service: /)).toBeTruthy();
  expect(bodies).toMatchObject([{ device_uuid: answers.gpus.gpus[0]?.uuid }]);
});

test("an Undo that is refused says why", async () => {
  const refusal = { code: "conflict", detail: "something may still run there" };
  server.use(http.post("*/api/v1/nodes/:id/uncordon", () => problem(409, refusal)));

  await cordonFirstGpu();
  await userEvent.click(screen.getByRole("button", { name: "Undo" }));

  expect(await screen.findByText(/^Not undone: .*something may still run/)).toBeTruthy();
});

test("a silent node says since when, and what to do about it", async () => {
  const [node] = answers.nodes.nodes;
  answer("/nodes/gpu-01", { ...node, fresh: false });

  await renderPage("/nodes/gpu-01");

  const note = within(await screen.findByRole("region", { name: "The node is silent" }));
  expect(note.getByText(/No readings from this node/)).toBeTruthy();
  expect(note.getByText(/journalctl -u gpusteward-agent/)).toBeTruthy();
});

test("an unknown node is told as such", async () => {
  await renderPage("/nodes/gpu-99");

  expect((await screen.findByRole("alert")).textContent).toContain("no node gpu-99");
});

test("a node's labels are set, and set back by Undo", async () => {
  const bodies: unknown[] = [];
  server.use(
    http.post("*/api/v1/nodes/:id/labels", async ({ request }) => {
      bodies.push(await request.json());
      return HttpResponse.json({ accepted: true }, { status: 202 });
    }),
  );
  await renderPage("/nodes/gpu-01");

  await userEvent.click(await screen.findByRole("button", { name: "Labels" }));
  await userEvent.type(await screen.findByRole("textbox", { name: "Labels" }), "zone=a");
  await userEvent.click(screen.getByRole("button", { name: "Set labels" }));
  await screen.findByText("Labels changed: node gpu-01");
  await userEvent.click(screen.getByRole("button", { name: "Undo" }));

  await waitFor(() =>
    expect(bodies).toEqual([{ labels: { zone: "a" } }, { labels: { zone: null } }]),
  );
});

test("a removal that is refused says why, a done one leaves the page", async () => {
  const refusal = { code: "conflict", detail: "gpu-01 still reports" };
  server.use(http.delete("*/api/v1/nodes/:id", () => problem(409, refusal)));
  await renderPage("/nodes/gpu-01");
  await userEvent.click(await screen.findByRole("button", { name: "Remove" }));
  const remove = await screen.findByRole("button", { name: "Remove gpu-01" });

  await userEvent.click(remove);
  expect((await screen.findByRole("alert")).textContent).toContain("still reports");
  server.use(
    http.delete("*/api/v1/nodes/:id", () => HttpResponse.json({ accepted: true }, { status: 202 })),
  );
  await userEvent.click(remove);

  expect(await screen.findByText("Removed: node gpu-01")).toBeTruthy();
  expect(await screen.findByRole("heading", { name: "Fleet" })).toBeTruthy();
});
