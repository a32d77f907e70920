const AT_LATEST_MS = 1_000;

/** Resolves once the browser has drawn what it was asked to, or soon: of code that the first view does without. */
export function whenIdle(): Promise<void> {
  return new Promise((resolve) => {
    // Not in every browser.
    if ("requestIdleCallback" in window) {
      window.requestIdleCallback(() => resolve(), { timeout: AT_LATEST_MS });
    } else {
      setTimeout(resolve, 50);
    }
  });
}
