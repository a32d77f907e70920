import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";

export const namespacesOptions = queryOptions({
  queryKey: ["namespaces"],
  queryFn: ({ signal }) => api(endpoints.listNamespaces, { signal }),
});
