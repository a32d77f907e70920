// @vitest-environment jsdom
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { loadPart } from "./parts";

const LONG_OPEN_MS = 60_000;
const offline = () => Promise.reject(new TypeError("offline"));
const served = () => Promise.resolve(new Response("ok"));
const gone = () => Promise.reject(new Error("no such file"));

beforeEach(() => vi.useFakeTimers());
afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

function openSince(ms: number) {
  vi.spyOn(performance, "now").mockReturnValue(ms);
  return vi.fn();
}

test("a part that is no more loads the page anew", async () => {
  vi.stubGlobal("fetch", served);
  const reload = openSince(LONG_OPEN_MS);
  await expect(loadPart(gone, { reload })).rejects.toThrow("no such file");
  expect(reload).toHaveBeenCalledOnce();
});

test("a part that is broken does not load a new page again and again", async () => {
  vi.stubGlobal("fetch", served);
  const reload = openSince(500);
  await expect(loadPart(gone, { waits: true, reload })).rejects.toThrow("no such file");
  expect(reload).not.toHaveBeenCalled();
});

test("a page that is offline stays as it is", async () => {
  const reload = openSince(LONG_OPEN_MS);
  for (const answer of [offline, () => Promise.resolve(new Response("", { status: 503 }))]) {
    vi.stubGlobal("fetch", answer);
    await expect(loadPart(gone, { reload })).rejects.toThrow("no such file");
  }
  expect(reload).not.toHaveBeenCalled();
});

test("a part that is waited for is there once the connection is", async () => {
  const reload = openSince(LONG_OPEN_MS);
  vi.stubGlobal("fetch", offline);
  let isBack = false;
  const load = vi.fn(() => (isBack ? Promise.resolve("palette") : gone()));
  const part = loadPart(load, { waits: true, reload });
  await vi.advanceTimersByTimeAsync(5_000);
  isBack = true;
  vi.stubGlobal("fetch", served);
  await vi.advanceTimersByTimeAsync(2_000);
  expect(await part).toBe("palette");
  expect(reload).not.toHaveBeenCalled();
});

test("styles that failed are fetched before their part is", async () => {
  vi.stubGlobal("fetch", served);
  const link = document.createElement("link");
  Object.assign(link, { rel: "stylesheet", href: "/assets/palette.css" });
  document.head.append(link);
  link.dispatchEvent(new Event("error"));

  const load = vi.fn(() => Promise.resolve("palette"));
  const part = loadPart(load);
  await vi.advanceTimersByTimeAsync(0);
  const again = document.head.querySelector("link[href='/assets/palette.css']");
  expect(again).not.toBe(link);
  expect(load).not.toHaveBeenCalled();
  again?.dispatchEvent(new Event("load"));
  expect(await part).toBe("palette");
  again?.remove();
});
