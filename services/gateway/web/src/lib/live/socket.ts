import { queryString, type Query } from "../api-client";

export type Connection = "connecting" | "open" | "waiting";

export interface LiveSocket {
  close(): void;
}

export interface LiveSocketOptions<T> {
  path: string;
  /** Asked before each connection, so that a new one goes on where the last one ended. */
  query: () => Query;
  onMessage: (message: T) => void;
  /** `retryAt` is set while waiting, in milliseconds as `Date.now()` has them. */
  onConnection: (connection: Connection, retryAt: number | null) => void;
}

const opened = new Set<() => void>();

/** For a gateway that answers again after it did not: a connection may be dead without its end being told. */
export function reopenSockets(): void {
  for (const reopen of opened) reopen();
}

const FIRST_RETRY_MS = 500;
const LAST_RETRY_MS = 8_000;

/** A WebSocket that is opened again, later each time, until it is closed here. */
export function openLiveSocket<T>(options: LiveSocketOptions<T>): LiveSocket {
  let socket: WebSocket | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let failures = 0;
  let isClosed = false;

  function connect(): void {
    clearTimeout(timer);
    options.onConnection("connecting", null);
    const url = new URL(options.path + queryString(options.query()), window.location.href);
    url.protocol = url.protocol.replace("http", "ws");
    const current = new WebSocket(url);
    socket = current;
    current.onopen = () => {
      failures = 0;
      options.onConnection("open", null);
    };
    current.onmessage = (event: MessageEvent<string>) => {
      options.onMessage(JSON.parse(event.data) as T);
    };
    current.onclose = () => {
      if (isClosed || socket !== current) return;
      const delay = retryDelay(failures++, Math.random());
      options.onConnection("waiting", Date.now() + delay);
      timer = setTimeout(connect, delay);
    };
  }

  function onOnline(): void {
    if (socket?.readyState === WebSocket.CLOSED) connect();
  }

  const reopen = () => socket?.close();
  opened.add(reopen);
  window.addEventListener("online", onOnline);
  connect();
  return {
    close() {
      isClosed = true;
      opened.delete(reopen);
      clearTimeout(timer);
      window.removeEventListener("online", onOnline);
      socket?.close();
    },
  };
}

/** Spread, so that many pages do not come back to a restarted gateway at one moment. */
export function retryDelay(failures: number, random: number): number {
  const longest = Math.min(LAST_RETRY_MS, FIRST_RETRY_MS * 2 ** failures);
  return longest * (0.5 + random / 2);
}
