import { http, HttpResponse, ws, type JsonBodyType } from "msw";
import { setupServer } from "msw/node";
import type { AgentView, EventList } from "@schemas/messages";
import { answers } from "./answers";

const API = "*/api/v1";

/** Of a path below /api/v1, or of a pattern for the whole address. */
const addressOf = (path: string) => (path.startsWith("*") ? path : API + path);

const get = (path: string, body: JsonBodyType) =>
  http.get(addressOf(path), () => HttpResponse.json(body));

const reservationsIn: Record<string, JsonBodyType> = {
  queued: answers.waiting,
  "granted,active,releasing": answers.holding,
};

const AGENT: AgentView = {
  type: "telemetry.agent_view",
  node_id: "gpu-01",
  boot_id: "01a2201a-0651-73ee-b7e8-3a53a0000001",
  source: "simulated",
  available: true,
  message: "",
  gpu_count: 2,
  sequence: 7,
  interval_seconds: 1,
};

const NODE_EVENTS: EventList = {
  type: "gateway.events",
  cursor: 7,
  events: [
    {
      cursor: 7,
      subject: "gpusteward.evt.scheduler.device_cordoned.gpu-01",
      type: "scheduler.device_cordoned",
      message_id: "01a2201a-0651-73ee-b7e8-3a53a0000002",
      occurred_at: "2026-01-01T00:00:00Z",
      event: { node_id: "gpu-01", device_uuid: null, reason: "new fan" },
    },
  ],
};

const OFFER = {
  type: "gateway.sign_in_offer",
  provider: null,
  issuer: null,
  has_device_flow: false,
};

/** What a platform answers on which a task has succeeded, another has failed, and a request waits. */
const PLATFORM = [
  get("/me", answers.me),
  get("/namespaces", answers.namespaces),
  get("/gpus", answers.gpus),
  get("/nodes", answers.nodes),
  http.get(`${API}/nodes/:id`, ({ params }) => {
    const node = answers.nodes.nodes.find(({ node_id: id }) => id === params["id"]);
    if (node) return HttpResponse.json(node);
    return problem(404, { code: "not_found", detail: `no node ${String(params["id"])}` });
  }),
  get("/nodes/:id/agent", AGENT),
  get("/nodes/:id/events", NODE_EVENTS),
  get("/cluster/devices", answers.clusterDevices),
  http.get(`${API}/reservations`, ({ request }) => {
    const states = new URL(request.url).searchParams.get("state") ?? "";
    return HttpResponse.json(reservationsIn[states] ?? answers.past);
  }),
  get("/reservations/:id/explain", answers.explanation),
  get("/tasks", answers.tasks),
  get("/tasks/:id", answers.task),
  get("/tasks/:id/experiments", answers.experimentsOfTask),
  get("/experiments", answers.experiments),
  get("/experiments/:id", answers.experiment),
  get("/experiments/:id/engine", answers.engineSeries),
  get("/experiments/:id/logs", answers.log),
  get("/experiments/:id/requests", answers.requests),
  get("/events", { ...answers.events, cursor: 0 }),
  get("/reports/waterfall/:id", answers.waterfall),
  get("/reports/gpu-time", answers.usage),
  get("/reports/waste", answers.waste),
  get("/reports/waits", answers.waits),
  get("/reports/failures", answers.failures),
  http.get(`${API}/series`, ({ request }) => {
    const by = new URL(request.url).searchParams.get("by");
    const { fleetSeries, nodeSeries, gpuSeries } = answers;
    return HttpResponse.json(by === "fleet" ? fleetSeries : by === "node" ? nodeSeries : gpuSeries);
  }),
  get("/pods", answers.pods),
  get("/presets", answers.presets),
  get("/engines", answers.engines),
  get("/sign-in", OFFER),
  get("/namespaces/:name/members", { type: "gateway.members", next_cursor: null, members: [] }),
  get("/tokens", answers.tokens),
  get("/audit", answers.audit),
  get("/datasets", answers.datasets),
  get("/secrets", answers.secrets),
  get("/decisions", answers.decisions),
  get("/drifts", answers.drifts),
  http.post(`${API}/tasks/validate`, () => HttpResponse.json(answers.plan)),
  http.post(`${API}/availability`, () => HttpResponse.json(answers.availability)),
  http.get("*/readyz", () => HttpResponse.text("ready")),
  http.get("*/metrics", () => HttpResponse.text("gpusteward_gateway_events_stored_total 12\n")),
];

// Connected, and silent: live messages are no part of these tests.
const SOCKETS = ws.link("*/ws/*").addEventListener("connection", () => undefined);

export const server = setupServer(...PLATFORM, SOCKETS);

/** Until the test ends the gateway answers this to a GET below /api/v1. */
export function answer(path: string, body: JsonBodyType): void {
  server.use(get(path, body));
}

/** Answers below /api/v1 are kept back until the function that it returns is called. */
export function holdBack(path: string): () => void {
  let release = () => undefined;
  const gate = new Promise<undefined>((resolve) => {
    release = () => {
      resolve(undefined);
      return undefined;
    };
  });
  // Without an answer of its own, the next handler gives one.
  server.use(http.all(addressOf(path), () => gate));
  return () => release();
}

/** Until the test ends a GET or POST below /api/v1 fails. */
export function fail(path: string, detail: string): void {
  server.use(http.all(addressOf(path), () => problem(500, { code: "internal", detail })));
}

/** As the gateway refuses or fails, by RFC 9457; `path` names the wrong field. */
export function problem(status: number, text: { code: string; detail: string; path?: string }) {
  return HttpResponse.json({ type: "about:blank", title: "Failed", status, ...text }, { status });
}
