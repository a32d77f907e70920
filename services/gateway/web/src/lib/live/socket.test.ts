// @vitest-environment jsdom
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { openLiveSocket, reopenSockets, retryDelay } from "./socket";

class FakeSocket {
  static made: FakeSocket[] = [];
  static readonly CLOSED = 3;
  readyState = 0;
  onopen?: () => void;
  onmessage?: (event: { data: string }) => void;
  onclose?: () => void;
  constructor(readonly url: URL) {
    FakeSocket.made.push(this);
  }
  close(): void {
    this.readyState = 3;
    this.onclose?.();
  }
}

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal("WebSocket", FakeSocket);
  FakeSocket.made = [];
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

test("a lost connection is opened again and goes on after the last cursor", () => {
  let cursor: number | null = null;
  const states: string[] = [];
  openLiveSocket<{ cursor: number }>({
    path: "/ws/events",
    query: () => ({ after: cursor }),
    onMessage: (message) => (cursor = message.cursor),
    onConnection: (connection) => states.push(connection),
  });

  FakeSocket.made[0]?.onopen?.();
  FakeSocket.made[0]?.onmessage?.({ data: '{"cursor": 41}' });
  FakeSocket.made[0]?.close();
  vi.advanceTimersByTime(500);

  expect(FakeSocket.made.map((socket) => socket.url.search)).toEqual(["", "?after=41"]);
  expect(states).toEqual(["connecting", "open", "waiting", "connecting"]);
});

test("all sockets are opened again when they are told to, but for those that were closed", () => {
  const quiet = { query: () => ({}), onMessage: () => undefined, onConnection: () => undefined };
  openLiveSocket({ ...quiet, path: "/ws/metrics" });
  openLiveSocket({ ...quiet, path: "/ws/logs" }).close();

  reopenSockets();
  vi.advanceTimersByTime(500);

  expect(FakeSocket.made.map((socket) => socket.url.pathname)).toEqual([
    "/ws/metrics",
    "/ws/logs",
    "/ws/metrics",
  ]);
});

test("a socket closed here stays closed", () => {
  const socket = openLiveSocket({
    path: "/ws/metrics",
    query: () => ({}),
    onMessage: () => undefined,
    onConnection: () => undefined,
  });

  socket.close();
  vi.advanceTimersByTime(60_000);

  expect(FakeSocket.made).toHaveLength(1);
});

test("retries come later each time, up to a limit, and never all at one moment", () => {
  expect([0, 1, 2, 10].map((failures) => retryDelay(failures, 1))).toEqual([500, 1000, 2000, 8000]);
  expect(retryDelay(0, 0)).toBe(250);
});
