import { Button, PasswordInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Failure } from "@/components/page";
import { logIn } from "@/lib/session";

export function LoginPage() {
  const client = useQueryClient();
  const [token, setToken] = useState("");
  const login = useMutation({
    mutationFn: logIn,
    onSuccess: () => client.resetQueries(),
  });
  return (
    <main style={{ maxWidth: 420, margin: "15vh auto", padding: 16 }}>
      <h1>GPU Steward</h1>
      <p className="dim">
        This platform asks for a token. <code>gpusteward up</code> says where yours is; an admin makes
        others with <code>gpusteward token create</code>.
      </p>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          login.mutate(token.trim());
        }}
      >
        <PasswordInput
          label="Token"
          autoComplete="current-password"
          value={token}
          onChange={(event) => setToken(event.currentTarget.value)}
          mb="sm"
        />
        {login.error && <Failure error={login.error} />}
        <Button type="submit" loading={login.isPending} disabled={!token.trim()}>
          Log in
        </Button>
      </form>
    </main>
  );
}
