// @vitest-environment jsdom
import { act, fireEvent, screen, waitFor } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { afterEach, expect, test } from "vitest";
import { answers } from "@/testing/answers";
import { renderPage, setUpPlatform } from "@/testing/render-page";
import { server } from "@/testing/server";
import { closePalette, openPalette } from "./palette";

setUpPlatform();
afterEach(() => {
  act(closePalette);
});

/** Answer a path once `release` is called. */
function hold(path: string, body: object): { release: () => void } {
  const { promise, resolve } = Promise.withResolvers<undefined>();
  server.use(
    http.get(`*/api/v1${path}`, async () => {
      await promise;
      return HttpResponse.json(body);
    }),
  );
  return { release: () => resolve(undefined) };
}

test("opened before it was loaded, it finds nodes all the same", async () => {
  const me = hold("/me", answers.me);
  const page = renderPage("/queue");
  openPalette();
  me.release();
  await page;

  fireEvent.change(await screen.findByLabelText("Search"), { target: { value: "cordon gpu-01" } });
  expect(await screen.findByText("Cordon gpu-01")).toBeTruthy();
});

test("Enter opens the first of matches that came late", async () => {
  const nodes = hold("/nodes", answers.nodes);
  await renderPage("/queue");
  act(openPalette);
  const search = await screen.findByLabelText("Search");
  fireEvent.change(search, { target: { value: "cordon gpu-01" } });
  await screen.findByText("No matches.");
  nodes.release();
  await screen.findByText("Cordon gpu-01");

  fireEvent.keyDown(search, { key: "Enter", code: "Enter" });
  await waitFor(() =>
    expect(screen.getByRole("dialog", { name: /Cordon: node gpu-01/ })).toBeTruthy(),
  );
});
