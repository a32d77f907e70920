import * as endpoints from "@schemas/endpoints";
import { reportOptions, type ReportScope } from "./report-options";

/** Where GPU time went, in lines by namespace, person, model and so on. */
export const usageOptions = ({ startAt, namespace }: ReportScope, by: string) =>
  reportOptions("gpu-time", endpoints.getGpuTime, {
    start_at: startAt,
    namespace: namespace || null,
    by,
    daily: true,
  });
