import { I18nProvider } from "@lingui/react";
import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, configure, render, screen } from "@testing-library/react";
import { createMemoryRouter, RouterProvider } from "react-router";
import { afterEach, beforeAll, vi } from "vitest";
import { routes } from "@/app/router";
import { i18n } from "@/lib/language";
import { queryClient } from "@/lib/query-client";
import { completeBrowser } from "./browser";
import { server } from "./server";

const PATIENCE_MS = 10_000; // of a busy machine

/** Call once in a file of tests: a browser, and a gateway that answers as `server` has it. */
export function setUpPlatform(): void {
  beforeAll(() => {
    completeBrowser();
    // Whether an element is hidden is a question of styles, which are not loaded here.
    configure({ defaultHidden: true, asyncUtilTimeout: PATIENCE_MS });
    server.listen({ onUnhandledRequest: "error" });
    return () => {
      server.close();
      vi.unstubAllGlobals();
    };
  });
  afterEach(() => {
    cleanup();
    server.resetHandlers();
  });
}

/** Draw the whole page at an address, with its shell; return once the page's code is there. */
export async function renderPage(address: string): Promise<void> {
  const client = new QueryClient({ defaultOptions: queryClient.getDefaultOptions() });
  const router = createMemoryRouter(routes, { initialEntries: [address] });
  render(
    <I18nProvider i18n={i18n}>
      <MantineProvider env="test">
        <QueryClientProvider client={client}>
          <RouterProvider router={router} />
        </QueryClientProvider>
      </MantineProvider>
    </I18nProvider>,
  );
  await screen.findByRole("main");
}
