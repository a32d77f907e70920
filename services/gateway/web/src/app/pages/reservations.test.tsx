// @vitest-environment jsdom
import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, test } from "vitest";
import { answers } from "@/testing/answers";
import { describePage } from "@/testing/page-states";
import { renderPage, setUpPlatform } from "@/testing/render-page";
import { problem, server } from "@/testing/server";

setUpPlatform();

const [reservation] = answers.holding.reservations;

describePage("reservations", {
  address: "/reservations",
  question: "/reservations",
  empty: { ...answers.holding, reservations: [] },
  emptyText: "No GPUs are held.",
  fullTexts: ["Requested by", reservation?.holder ?? ""],
});

async function openFirst() {
  await renderPage("/reservations");
  const [open] = await screen.findAllByRole("button", { name: /^Use, renew, release: / });
  await userEvent.click(open as HTMLElement);
  return within(await screen.findByRole("dialog"));
}

test("a release is confirmed, sent with its epoch, and said", async () => {
  const sent: URL[] = [];
  server.use(
    http.delete("*/api/v1/reservations/:id", ({ request }) => {
      sent.push(new URL(request.url));
      return HttpResponse.json({ ...reservation, state: "released" });
    }),
  );
  const dialog = await openFirst();

  await userEvent.click(dialog.getByRole("button", { name: "Release…" }));
  expect(sent).toHaveLength(0);
  await userEvent.click(dialog.getByRole("checkbox"));
  await userEvent.click(dialog.getByRole("button", { name: /^Release \d/ }));

  expect(await screen.findByText(/^Released: /)).toBeTruthy();
  expect(sent[0]?.searchParams.get("epoch")).toBe(String(reservation?.epoch));
  expect(sent[0]?.searchParams.get("stopped")).toBe("true");
});

test("a refused renewal says why, and the dialog stays", async () => {
  server.use(
    http.post("*/api/v1/reservations/:id/renew", () =>
      problem(409, { code: "conflict", detail: "expected the lease to be in force, it is over" }),
    ),
  );
  const dialog = await openFirst();

  await userEvent.click(dialog.getByRole("button", { name: /^Renew/ }));

  expect(await dialog.findByText(/the lease to be in force/)).toBeTruthy();
});

test("GPUs are reserved by a form, and waiting for them is said", async () => {
  const bodies: unknown[] = [];
  server.use(
    http.post("*/api/v1/reservations", async ({ request }) => {
      bodies.push(await request.json());
      return HttpResponse.json(
        { ...reservation, holder: "eval", state: "queued" },
        { status: 201 },
      );
    }),
  );
  await renderPage("/reservations");
  await userEvent.click(await screen.findByRole("button", { name: "Reserve GPUs" }));
  await userEvent.type(await screen.findByLabelText("Name"), "eval");
  await userEvent.click(screen.getByRole("button", { name: "Reserve" }));

  expect(await screen.findByText("eval: waits in the queue")).toBeTruthy();
  expect(bodies).toMatchObject([
    { holder: "eval", request: { gpus: 1, nodes: 1, lease_ttl_seconds: 3600 } },
  ]);
});
