import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { Me } from "@schemas/messages";
import { Facts } from "@/components/facts";
import { Failure, Loaded, Page } from "@/components/page";
import { TokenTable } from "@/components/tokens/token-table";
import { meOptions } from "@/lib/api/get-me";
import { moment, useNow } from "@/lib/time";
import { myTokensOptions } from "./api/get-my-tokens";
import { useSignOut } from "./api/sign-out";

export function AccountPage() {
  const me = useQuery(meOptions);
  return (
    <Page title={t`Account`}>
      <Loaded query={me}>{(data) => <Account me={data} />}</Loaded>
    </Page>
  );
}

function Account({ me }: { me: Me }) {
  const now = useNow();
  const signOut = useSignOut();
  const isLoggedIn = me.csrf_token !== null;
  return (
    <>
      <Facts
        facts={[
          [t`Name`, me.name || t`nobody in particular`],
          [t`Role`, me.role],
          [t`Namespaces`, namespacesOf(me)],
          [t`Signed in by`, wayIn(me)],
          [t`Until`, me.ends_at ? moment(me.ends_at, now) : t`no end`],
        ]}
      />
      {signOut.error && <Failure error={signOut.error} />}
      {isLoggedIn && (
        <Button
          size="xs"
          variant="default"
          mt="sm"
          loading={signOut.isPending}
          onClick={() => signOut.mutate()}
        >
          <Trans>Sign out</Trans>
        </Button>
      )}
      {me.token_id && (
        <section>
          <h2>
            <Trans>My tokens</Trans>
          </h2>
          {me.provider && (
            <p className="dim">
              <Trans>
                A token of yours acts as you, never with more than you may do, and ends with your
                sign-in at {me.provider}. Sessions of browsers and of the command line are here too.
              </Trans>
            </p>
          )}
          <MyTokens canCreate={me.provider !== null} />
        </section>
      )}
    </>
  );
}

function MyTokens({ canCreate }: { canCreate: boolean }) {
  const tokens = useQuery(myTokensOptions);
  return <TokenTable tokens={tokens} isPersonal canCreate={canCreate} />;
}

function namespacesOf(me: Me): string {
  if (me.role === "admin") return "all";
  return me.namespaces.map((name) => `${name} (${me.roles[name] ?? me.role})`).join(", ");
}

function wayIn(me: Me): string {
  if (me.provider) return me.provider;
  return me.token_id ? t`a token of this platform` : t`this host, without a token`;
}
