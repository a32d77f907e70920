// @vitest-environment jsdom
import { fireEvent, screen, within } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { expect, test } from "vitest";
import { answers } from "@/testing/answers";
import { renderPage, setUpPlatform } from "@/testing/render-page";
import { answer, problem, server } from "@/testing/server";

setUpPlatform();

const OLGA = {
  ...answers.me,
  role: "owner",
  namespaces: ["team-a", "shared"],
  roles: { shared: "viewer" },
  name: "olga",
  person: "olga",
  token_id: "00000000-0000-4000-8000-000000000001",
  csrf_token: "csrf",
  asks_for_tokens: true,
  provider: "Example ID",
  ends_at: "2999-01-01T00:00:00Z",
} as const;
const TOKEN = {
  type: "gateway.token",
  token_id: "00000000-0000-4000-8000-000000000001",
  name: "browser",
  role: "owner",
  namespaces: ["team-a"],
  created_at: "2026-11-28T00:00:00Z",
  created_by: "olga",
  from_file: false,
  expires_at: null,
  revoked_at: null,
  last_used_at: null,
  requests_per_second: null,
  body_limit_bytes: null,
  person: "olga",
  is_session: true,
};

test("who is signed in, by what, and what of", async () => {
  answer("/me", OLGA);
  answer("/tokens", { ...answers.tokens, tokens: [TOKEN] });
  await renderPage("/account");

  const main = within(await screen.findByRole("main"));
  expect(await main.findByText("team-a (owner), shared (viewer)")).toBeTruthy();
  expect(main.getByText("Example ID")).toBeTruthy();
  expect(await main.findByText("browser (session)")).toBeTruthy();
});

test("a token of one's own is personal", async () => {
  answer("/me", OLGA);
  const bodies: unknown[] = [];
  server.use(
    http.post("*/api/v1/tokens", async ({ request }) => {
      bodies.push(await request.json());
      return HttpResponse.json({ secret: "shown once", token: TOKEN }, { status: 201 });
    }),
  );
  await renderPage("/account");

  fireEvent.click(await screen.findByRole("button", { name: "Create token" }));
  fireEvent.change(await screen.findByRole("textbox", { name: /^Name/ }), {
    target: { value: "nightly" },
  });
  const dialog = within(screen.getByRole("dialog"));
  fireEvent.click(dialog.getByRole("button", { name: "Create token" }));

  expect(await screen.findByText("shown once")).toBeTruthy();
  expect(bodies).toEqual([
    expect.objectContaining({ name: "nightly", personal: true, namespaces: ["team-a", "shared"] }),
  ]);
});

test("signing out leads to the login page", async () => {
  answer("/me", OLGA);
  await renderPage("/account");
  const button = await screen.findByRole("button", { name: "Sign out" });
  server.use(
    http.post("*/api/v1/sign-out", () => {
      answer("/sign-in", {
        type: "gateway.sign_in_offer",
        provider: "Example ID",
        issuer: "https://id.example",
        has_device_flow: true,
      });
      server.use(
        http.get("*/api/v1/me", () => problem(401, { code: "unauthenticated", detail: "no" })),
      );
      return HttpResponse.json({ type: "gateway.signed_out", provider_url: null });
    }),
  );

  fireEvent.click(button);

  const link = await screen.findByRole("link", { name: "Sign in with Example ID" });
  expect(link.getAttribute("href")).toBe("/sign-in/start?place=%2F");
});

test("an owner sets members of its namespaces alone", async () => {
  answer("/me", OLGA);
  const member = {
    member_id: "00000000-0000-4000-8000-000000000002",
    namespace: "team-a",
    kind: "person",
    name: "ada",
    role: "viewer",
    set_by: "olga",
    set_at: "2026-11-28T00:00:00Z",
  };
  answer("/namespaces/team-a/members", {
    type: "gateway.members",
    next_cursor: null,
    members: [member],
  });
  const bodies: unknown[] = [];
  server.use(
    http.post("*/api/v1/namespaces/team-a/members", async ({ request }) => {
      bodies.push(await request.json());
      return HttpResponse.json(member, { status: 201 });
    }),
  );
  await renderPage("/admin?tab=members");

  expect(await screen.findByRole("button", { name: "Remove ada" })).toBeTruthy();
  expect(screen.queryByRole("tab", { name: "Audit log" })).toBeNull();
  fireEvent.click(screen.getByRole("button", { name: "Add member" }));
  fireEvent.change(await screen.findByRole("textbox", { name: /^Name/ }), {
    target: { value: "bob" },
  });
  fireEvent.click(screen.getByRole("button", { name: "Set" }));

  await expect.poll(() => bodies).toEqual([{ kind: "person", name: "bob", role: "submitter" }]);
});
