import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Page } from "@/components/page";
import { Tabbed } from "@/components/tabbed";
import { ownNamespaces, useMe } from "@/lib/api/get-me";
import { useUrlState } from "@/lib/url-state";
import { AuditLog } from "./components/audit-log";
import { Datasets } from "./components/datasets";
import { Decisions } from "./components/decisions";
import { Diagnostics } from "./components/diagnostics";
import { Drifts } from "./components/drifts";
import { Members } from "./components/members";
import { Namespaces } from "./components/namespaces";
import { Nodes } from "./components/nodes";
import { PlatformHealth } from "./components/platform-health";
import { Secrets } from "./components/secrets";
import { Tokens } from "./components/tokens";

const TABS = [
  { value: "nodes", word: t`Nodes`, Content: Nodes },
  { value: "health", word: t`Health`, Content: PlatformHealth },
  { value: "namespaces", word: t`Namespaces`, Content: Namespaces },
  { value: "secrets", word: t`Secrets`, Content: Secrets },
  { value: "datasets", word: t`Datasets`, Content: Datasets },
  { value: "drift", word: t`Drift`, Content: Drifts },
  { value: "members", word: t`Members`, Content: Members, isForOwners: true },
  { value: "tokens", word: t`Tokens`, Content: Tokens, isForOwners: true },
  { value: "audit", word: t`Audit log`, Content: AuditLog, isForAdmins: true },
  { value: "decisions", word: t`Decisions`, Content: Decisions, isForAdmins: true },
  { value: "diagnostics", word: t`Diagnostics`, Content: Diagnostics, isForAdmins: true },
];

export function AdminPage() {
  const me = useMe();
  const [chosen, setTab] = useUrlState("tab", "nodes");
  const isOwner = me !== undefined && ownNamespaces(me).length > 0;
  const tabs = TABS.filter(
    (tab) => me?.role === "admin" || (!tab.isForAdmins && (!tab.isForOwners || isOwner)),
  );
  const tab = tabs.find((candidate) => candidate.value === chosen) ?? tabs[0];
  return (
    <Page title={t`Administration`}>
      {me && me.role !== "admin" && (
        <p className="dim">
          <Trans>
            You are here as {me.role === "owner" ? "an" : "a"} {me.role} of{" "}
            {me.namespaces.join(", ")}.
            {isOwner ? t` The` : t` Members and tokens are for owners of a namespace, the`} audit
            log, decisions and diagnostics for admins.
          </Trans>
        </p>
      )}
      <Tabbed
        tabs={tabs.map(({ value, word, Content }) => ({ value, word, content: <Content /> }))}
        chosen={tab?.value ?? null}
        onChoose={setTab}
      />
    </Page>
  );
}
