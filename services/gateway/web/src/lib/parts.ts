import { lazy, type ComponentType, type LazyExoticComponent } from "react";
import { pause } from "./pause";

const RETRY_MS = 2_000;
/** A page younger than this asks for parts of the build that is served: what it misses is not cured by loading it anew. */
const SAME_BUILD_MS = 10_000;

/**
 * Loads code that the first view does without. What no answer came for is asked for again, by whoever waits for it as
 * often as it takes. A page that is open while a newer one was built asks for parts that are no more: it is loaded
 * anew, where the platform answers, since a browser that is offline would show its own page instead of ours.
 */
export async function loadPart<T>(
  load: () => Promise<T>,
  { waits = false, reload = () => window.location.reload() } = {},
): Promise<T> {
  for (let missed = 0; ;) {
    try {
      await refetchStyles();
      return await load();
    } catch (error) {
      const isServed = await answers();
      if (isServed && missed > 0 && performance.now() > SAME_BUILD_MS) reload();
      if (isServed ? missed > 0 : !waits) throw error;
      missed = isServed ? missed + 1 : 0;
      if (!isServed) await pause(RETRY_MS);
    }
  }
}

/** A component of such code: where the connection is gone it is not there yet, and the rest of the page stays. */
export const latePart = <P>(
  load: () => Promise<{ default: ComponentType<P> }>,
): LazyExoticComponent<ComponentType<P>> => lazy(() => loadPart(load, { waits: true }));

async function answers(): Promise<boolean> {
  const answer = await fetch("/healthz").catch(() => null);
  return answer?.ok ?? false;
}

/** Styles that no answer came for: the build's loader asks for each file once. */
const failedStyles = new Set<HTMLLinkElement>();
// Units are tested outside a browser, too.
if ("window" in globalThis) window.addEventListener("error", noteFailedStyles, { capture: true });

function noteFailedStyles({ target }: Event) {
  if (target instanceof HTMLLinkElement && target.rel === "stylesheet") failedStyles.add(target);
}

async function refetchStyles(): Promise<void> {
  const links = [...failedStyles];
  failedStyles.clear();
  await Promise.all(
    links.map(
      (link) =>
        new Promise((resolve, reject) => {
          const again = link.cloneNode() as HTMLLinkElement;
          again.addEventListener("load", resolve);
          again.addEventListener("error", () => reject(new Error(`no answer for ${again.href}`)));
          link.replaceWith(again);
        }),
    ),
  );
}
