import { Tabs } from "@mantine/core";
import { Page } from "@/components/page";
import { TabList } from "@/components/tab-list";
import { useMe } from "@/lib/api/get-me";
import { useUrlState } from "@/lib/url-state";
import { AuditLog } from "./components/audit-log";
import { Decisions } from "./components/decisions";
import { Drifts } from "./components/drifts";
import { Namespaces } from "./components/namespaces";
import { PlatformHealth } from "./components/platform-health";
import { Secrets } from "./components/secrets";
import { Tokens } from "./components/tokens";

const TABS = [
  { value: "health", word: "Health", Content: PlatformHealth },
  { value: "namespaces", word: "Namespaces", Content: Namespaces },
  { value: "secrets", word: "Secrets", Content: Secrets },
  { value: "drift", word: "Drift", Content: Drifts },
  { value: "tokens", word: "Tokens", Content: Tokens, isForAdmins: true },
  { value: "audit", word: "Audit log", Content: AuditLog, isForAdmins: true },
  { value: "decisions", word: "Decisions", Content: Decisions, isForAdmins: true },
];

export function AdminPage() {
  const me = useMe();
  const [chosen, setTab] = useUrlState("tab", "health");
  const tabs = TABS.filter((tab) => !tab.isForAdmins || me?.role === "admin");
  const tab = tabs.find((candidate) => candidate.value === chosen) ?? tabs[0];
  return (
    <Page title="Administration">
      {me && me.role !== "admin" && (
        <p className="dim">
          You are here as a {me.role} of {me.namespaces.join(", ")}. Tokens, the audit log and
          decisions are for admins.
        </p>
      )}
      <Tabs
        value={tab?.value ?? null}
        onChange={(value) => value && setTab(value)}
        keepMounted={false}
      >
        <TabList chosen={tab?.value ?? null}>
          {tabs.map(({ value, word }) => (
            <Tabs.Tab key={value} value={value}>
              {word}
            </Tabs.Tab>
          ))}
        </TabList>
        {tabs.map(({ value, Content }) => (
          <Tabs.Panel key={value} value={value}>
            <Content />
          </Tabs.Panel>
        ))}
      </Tabs>
    </Page>
  );
}
