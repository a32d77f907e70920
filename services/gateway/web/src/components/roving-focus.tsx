import { useEffect, useRef, type ReactNode } from "react";
import { arrowTarget } from "./arrow-target";

interface RovingFocusProps {
  label: string;
  className?: string;
  /** Links with `tabIndex={-1}`, some of which come and go. */
  children: ReactNode;
}

/** All links in it are one stop of Tab, the last that was used; arrow keys go from one to the next. */
export function RovingFocus({ label, className, children }: RovingFocusProps) {
  const element = useRef<HTMLDivElement>(null);

  useEffect(() => {
    const within = element.current;
    if (!within) return;
    let stop: HTMLAnchorElement | undefined;
    const links = () => [...within.querySelectorAll<HTMLAnchorElement>("a:not([inert] *)")];
    const stopAt = (link: HTMLAnchorElement | undefined) => {
      if (stop !== link) stop?.setAttribute("tabindex", "-1");
      link?.setAttribute("tabindex", "0");
      stop = link;
    };
    const settle = () => {
      if (!stop?.isConnected) stopAt(links()[0]);
    };
    const onFocus = ({ target }: FocusEvent) => {
      const link = target instanceof Element ? target.closest("a") : null;
      if (link) stopAt(link);
    };
    const onKey = (event: KeyboardEvent) => {
      if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
      const all = links();
      const from = all.findIndex((link) => link === document.activeElement);
      const to = arrowTarget(
        all.map((link) => link.getBoundingClientRect()),
        from,
        event.key,
      );
      if (to === null) return;
      event.preventDefault();
      all[to]?.focus();
    };
    const observer = new MutationObserver(settle);
    observer.observe(within, { childList: true, subtree: true });
    within.addEventListener("focusin", onFocus);
    within.addEventListener("keydown", onKey);
    settle();
    return () => {
      observer.disconnect();
      within.removeEventListener("focusin", onFocus);
      within.removeEventListener("keydown", onKey);
    };
  }, []);

  return (
    <div ref={element} role="group" aria-label={label} className={className}>
      {children}
    </div>
  );
}
