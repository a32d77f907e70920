import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";

export const signInOptions = queryOptions({
  queryKey: ["sign-in"],
  queryFn: ({ signal }) => api(endpoints.showSignIn, { signal }),
  staleTime: Infinity,
});
