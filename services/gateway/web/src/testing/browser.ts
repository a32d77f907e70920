import { vi } from "vitest";

/** What jsdom lacks of a browser, as far as the page asks for it. */
export function completeBrowser(): void {
  vi.stubGlobal("ResizeObserver", IdleObserver);
  vi.stubGlobal("IntersectionObserver", NearObserver);
  window.matchMedia = (media) =>
    Object.assign(new EventTarget(), { matches: false, media }) as never;
  Object.defineProperty(document, "fonts", { value: new EventTarget(), configurable: true });
  Element.prototype.scrollTo = () => undefined;
  Element.prototype.scrollIntoView = () => undefined;
}

class IdleObserver {
  observe(): void {
    return;
  }
  unobserve(): void {
    return;
  }
  disconnect(): void {
    return;
  }
}

/** All that is observed is in sight. */
class NearObserver extends IdleObserver {
  constructor(private readonly callback: IntersectionObserverCallback) {
    super();
  }
  override observe(): void {
    const entry = { isIntersecting: true } as IntersectionObserverEntry;
    this.callback([entry], this as unknown as IntersectionObserver);
  }
}
