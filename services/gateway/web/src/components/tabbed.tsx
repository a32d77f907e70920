import { t } from "@lingui/core/macro";
import { Loader, Tabs, type TabsProps } from "@mantine/core";
import { Suspense, useEffect, useRef, type ReactNode } from "react";

interface Tab {
  value: string;
  word: ReactNode;
  content: ReactNode;
}

interface TabbedProps extends Pick<TabsProps, "mt"> {
  tabs: Tab[];
  chosen: string | null;
  onChoose: (value: string) => void;
}

/** One of several contents at a time, each under its tab; code that is not there yet is waited for. */
export function Tabbed({ tabs, chosen, onChoose, mt }: TabbedProps) {
  const list = useRef<HTMLDivElement>(null);
  // On a phone the list is wider than its page: the chosen tab is scrolled to.
  useEffect(() => {
    const tab = list.current?.querySelector<HTMLElement>("[aria-selected=true]");
    if (tab) list.current?.scrollTo({ left: tab.offsetLeft - tab.offsetWidth / 2 });
  }, [chosen]);
  return (
    <Tabs value={chosen} onChange={(value) => value && onChoose(value)} keepMounted={false} mt={mt}>
      <Tabs.List ref={list} mb="sm" className="tabs">
        {tabs.map(({ value, word }) => (
          <Tabs.Tab key={value} value={value}>
            {word}
          </Tabs.Tab>
        ))}
      </Tabs.List>
      <Suspense fallback={<Loader size="sm" role="status" aria-label={t`loading the tab`} />}>
        {tabs.map(({ value, content }) => (
          <Tabs.Panel key={value} value={value}>
            {content}
          </Tabs.Panel>
        ))}
      </Suspense>
    </Tabs>
  );
}
