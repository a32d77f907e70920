import { Button, Loader, PasswordInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { Failure } from "@/components/page";
import { signInOptions } from "@/lib/api/get-sign-in";
import { paths } from "@/lib/paths";
import { takeLoginCode } from "@/lib/session";
import { useLogIn } from "./api/log-in";

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
    return <Loader size="sm" role="status" aria-label="logging in" m="xl" />;
  return (
    <main style={{ maxWidth: 420, margin: "15vh auto", padding: 16 }}>
      <h1>GPU Steward</h1>
      {isByLink && login.error && <Failure error={login.error} />}
      {provider && (
        <p>
          <Button
            component="a"
            href={paths.signIn(window.location.pathname + window.location.search)}
          >
            Sign in with {provider}
          </Button>
        </p>
      )}
      <p className="dim">
        {provider
          ? "Programs, and who runs the platform, log in with a token."
          : "This platform asks for a token."}{" "}
        <code>gpusteward up</code> says where yours is, and <code>gpusteward login</code> prints an
        address that opens this page logged in; an admin makes others with{" "}
        <code>gpusteward token create</code>.
      </p>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          mutate({ token: token.trim() });
        }}
      >
        <PasswordInput
          label="Token"
          autoComplete="current-password"
          value={token}
          onChange={(event) => setToken(event.currentTarget.value)}
          mb="sm"
        />
        {!isByLink && login.error && <Failure error={login.error} />}
        <Button
          type="submit"
          variant={provider ? "default" : "filled"}
          loading={login.isPending}
          disabled={!token.trim()}
        >
          Log in
        </Button>
      </form>
    </main>
  );
}
