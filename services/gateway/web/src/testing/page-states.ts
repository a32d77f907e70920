import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import type { JsonBodyType } from "msw";
import { describe, expect, test } from "vitest";
import { renderPage } from "./render-page";
import { answer, fail, holdBack, server } from "./server";

interface PageStates {
  address: string;
  /** What the page asks the gateway for first, below /api/v1. */
  question: string;
  /** An answer with nothing in it, and what the page says of it. */
  empty: JsonBodyType;
  emptyText: string | RegExp;
  /** What the page shows of the platform's answers. */
  fullTexts: (string | RegExp)[];
}

const LOADING = { name: /^loading/ };
const main = () => within(screen.getByRole("main"));

/** What a page shows while it waits, with nothing, after a failure, and with everything. */
export function describePage(name: string, states: PageStates): void {
  const { address, question, empty, emptyText, fullTexts } = states;

  async function expectFull(): Promise<void> {
    for (const text of fullTexts) {
      const matches = await main().findAllByText(text);
      expect(matches.length, String(text)).toBeGreaterThan(0);
    }
  }

  describe(name, () => {
    test("it says that it loads, then shows what was answered", async () => {
      const release = holdBack(question);
      await renderPage(address);
      expect(main().queryAllByRole("status", LOADING).length).toBeGreaterThan(0);
      expect(screen.queryByRole("alert")).toBeNull();

      release();

      await expectFull();
    });

    test("it says what there is none of", async () => {
      answer(question, empty);

      await renderPage(address);

      expect((await main().findAllByText(emptyText)).length).toBeGreaterThan(0);
    });

    test("it tells a failure, and asks again by its button", async () => {
      fail(question, "the ledger is away");
      await renderPage(address);
      await waitFor(() => expect(main().queryAllByRole("status", LOADING)).toEqual([]));
      const [alert] = main().getAllByRole("alert");
      expect(alert?.textContent).toContain("the ledger is away");

      server.resetHandlers();
      for (const button of main().getAllByRole("button", { name: "Try again" })) {
        await userEvent.click(button);
      }

      await expectFull();
      expect(screen.queryByRole("alert")).toBeNull();
    });
  });
}
