import { useEffect, useRef, useState, type ReactNode } from "react";

interface WhenNearProps {
  /** What it will about measure, so that the scroll bar is right from the start. */
  heightPx: number;
  className?: string;
  /** It is in sight when the page is first drawn, before anything can be measured. */
  startsNear?: boolean;
  children: () => ReactNode;
}

const MARGIN_PX = 600;

/** Drawn only while it is in sight or soon will be: thousands of them cost what a screenful does. */
export function WhenNear({ heightPx, className, startsNear, children }: WhenNearProps) {
  const element = useRef<HTMLDivElement>(null);
  const [isNear, setNear] = useState(startsNear ?? false);
  const [knownPx, setKnownPx] = useState(heightPx);

  useEffect(() => {
    const observed = element.current;
    if (!observed) return;
    const observer = new IntersectionObserver(
      (entries) => {
        const entry = entries.at(-1);
        if (!entry) return;
        // What has the focus stays, however far one scrolls.
        if (!entry.isIntersecting && observed.contains(document.activeElement)) return;
        if (!entry.isIntersecting && entry.boundingClientRect.height > 0)
          setKnownPx(entry.boundingClientRect.height);
        setNear(entry.isIntersecting);
      },
      { root: document.getElementById("main"), rootMargin: `${MARGIN_PX}px 0px` },
    );
    observer.observe(observed);
    return () => observer.disconnect();
  }, []);

  return (
    <div ref={element} className={className} style={isNear ? undefined : { minHeight: knownPx }}>
      {isNear && children()}
    </div>
  );
}
