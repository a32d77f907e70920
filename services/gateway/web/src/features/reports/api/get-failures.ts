import * as endpoints from "@schemas/endpoints";
import { reportOptions, type ReportScope } from "./report-options";

export const failuresOptions = ({ startAt, namespace }: ReportScope) =>
  reportOptions("failures", endpoints.getFailures, {
    start_at: startAt,
    namespace: namespace || null,
  });
