import { Tabs } from "@mantine/core";
import { Page } from "@/components/page";
import { TabList } from "@/components/tab-list";
import { ownNamespaces, useMe } from "@/lib/api/get-me";
import { useUrlState } from "@/lib/url-state";
import { AuditLog } from "./components/audit-log";
import { Decisions } from "./components/decisions";
import { Drifts } from "./components/drifts";
import { Members } from "./components/members";
import { Namespaces } from "./components/namespaces";
import { PlatformHealth } from "./components/platform-health";
import { Secrets } from "./components/secrets";
import { Tokens } from "./components/tokens";

const TABS = [
  { value: "health", word: "Health", Content: PlatformHealth },
  { value: "namespaces", word: "Namespaces", Content: Namespaces },
  { value: "secrets", word: "Secrets", Content: Secrets },
  { value: "drift", word: "Drift", Content: Drifts },
  { value: "members", word: "Members", Content: Members, isForOwners: true },
  { value: "tokens", word: "Tokens", Content: Tokens, isForOwners: true },
  { value: "audit", word: "Audit log", Content: AuditLog, isForAdmins: true },
  { value: "decisions", word: "Decisions", Content: Decisions, isForAdmins: true },
];

export function AdminPage() {
  const me = useMe();
  const [chosen, setTab] = useUrlState("tab", "health");
  const isOwner = me !== undefined && ownNamespaces(me).length > 0;
  const tabs = TABS.filter(
    (tab) => me?.role === "admin" || (!tab.isForAdmins && (!tab.isForOwners || isOwner)),
  );
  const tab = tabs.find((candidate) => candidate.value === chosen) ?? tabs[0];
  return (
    <Page title="Administration">
      {me && me.role !== "admin" && (
        <p className="dim">
          You are here as {me.role === "owner" ? "an" : "a"} {me.role} of {me.namespaces.join(", ")}
          .{isOwner ? " The" : " Members and tokens are for owners of a namespace, the"} audit log
          and decisions for admins.
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
