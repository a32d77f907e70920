import { useMutation, useQueryClient } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";

/** By a token, or by the code of a link. */
type Credential = { token: string } | { code: string };

/** Everything is fetched again for who is logged in. */
export function useLogIn() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: async (credential: Credential) => {
      await api(endpoints.logIn, { body: credential });
    },
    onSuccess: () => client.resetQueries(),
  });
}
