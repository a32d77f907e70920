import { Tabs } from "@mantine/core";
import { useEffect, useRef, type ReactNode } from "react";

/** On a phone it is wider than its page: the chosen tab is scrolled to. */
export function TabList({ chosen, children }: { chosen: string | null; children: ReactNode }) {
  const list = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const tab = list.current?.querySelector<HTMLElement>("[aria-selected=true]");
    if (tab) list.current?.scrollTo({ left: tab.offsetLeft - tab.offsetWidth / 2 });
  }, [chosen]);
  return (
    <Tabs.List ref={list} mb="sm" className="tabs">
      {children}
    </Tabs.List>
  );
}
