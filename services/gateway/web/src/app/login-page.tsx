import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button, Loader, PasswordInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { Failure } from "@/components/page";
import { signInOptions } from "@/lib/api/get-sign-in";
import { paths } from "@/lib/paths";
import { isLoggedOut, takeLoginCode } from "@/lib/session";
import { useLogIn } from "./api/log-in";

const INVALID = t`This token is not valid. It may have been revoked or has expired.`;

export function LoginPage() {
  const [token, setToken] = useState("");
  const login = useLogIn();
  const { mutate } = login;
  const provider = useQuery(signInOptions).data?.provider;
  useEffect(() => {
    const logInByLink = () => {
      const code = takeLoginCode();
      if (code !== null) mutate({ code });
    };
    logInByLink();
    // A link that is pasted where this page is open loads nothing anew.
    window.addEventListener("hashchange", logInByLink);
    return () => window.removeEventListener("hashchange", logInByLink);
  }, [mutate]);
  const isByLink = login.variables !== undefined && "code" in login.variables;
  if (isByLink && login.isPending)
    return <Loader size="sm" role="status" aria-label={t`logging in`} m="xl" />;
  return (
    <main style={{ maxWidth: 420, margin: "15vh auto", padding: 16 }}>
      <h1 style={{ display: "flex", alignItems: "center", gap: 10 }}>
        <img src="/icon.svg" width={32} height={32} alt="" />
        GPU Steward
      </h1>
      {isByLink && login.error && <Failure error={login.error} />}
      {provider && (
        <p>
          <Button
            component="a"
            href={paths.signIn(window.location.pathname + window.location.search)}
          >
            <Trans>Sign in with {provider}</Trans>
          </Button>
        </p>
      )}
      <p className="dim">
        {provider
          ? t`Programs, and who runs the platform, log in with a token.`
          : t`This platform asks for a token.`}
      </p>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          mutate({ token: token.trim() });
        }}
      >
        <PasswordInput
          label={t`Token`}
          autoComplete="current-password"
          value={token}
          onChange={(event) => setToken(event.currentTarget.value)}
          mb="sm"
        />
        {!isByLink && login.error && (
          <Failure error={isLoggedOut(login.error) ? new Error(INVALID) : login.error} />
        )}
        <Button
          type="submit"
          variant={provider ? "default" : "filled"}
          loading={login.isPending}
          disabled={!token.trim()}
        >
          <Trans>Log in</Trans>
        </Button>
      </form>
      <details style={{ marginTop: 24 }}>
        <summary>{t`Where do I get a token?`}</summary>
        <ul>
          <li>
            <Trans>
              <code>gpusteward up</code> says where yours is.
            </Trans>
          </li>
          <li>
            <Trans>
              <code>gpusteward login</code> prints a link that opens this page logged in, once.
            </Trans>
          </li>
          <li>
            <Trans>
              An admin creates tokens for others: <code>gpusteward token create</code>, or the page
              Admin.
            </Trans>
          </li>
        </ul>
      </details>
    </main>
  );
}
