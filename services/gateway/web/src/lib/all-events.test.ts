import { afterEach, expect, test, vi } from "vitest";
import { allEvents } from "./all-events";

afterEach(() => vi.unstubAllGlobals());

test("a page of few events is not the last one while its cursor goes on", async () => {
  const pages: Record<string, { events: { cursor: number }[]; cursor: number }> = {
    "0": { events: [{ cursor: 3 }], cursor: 500 },
    "500": { events: [], cursor: 1000 },
    "1000": { events: [{ cursor: 1200 }], cursor: 1300 },
    "1300": { events: [], cursor: 1300 },
  };
  vi.stubGlobal("fetch", (url: string) =>
    Promise.resolve(
      Response.json(pages[new URL(url, "http://page").searchParams.get("after") ?? ""]),
    ),
  );

  const events = await allEvents({ task_id: "t" }, new AbortController().signal);

  expect(events.map((event) => event.cursor)).toEqual([3, 1200]);
});
