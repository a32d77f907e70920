import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";

export const membersOptions = (namespace: string) =>
  queryOptions({
    queryKey: ["members", namespace],
    queryFn: ({ signal }) => api(endpoints.listMembers, { place: { namespace }, signal }),
  });
