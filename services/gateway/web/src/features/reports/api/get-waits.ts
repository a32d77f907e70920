import * as endpoints from "@schemas/endpoints";
import { reportOptions, type ReportScope } from "./report-options";

export const waitsOptions = ({ startAt, namespace }: ReportScope) =>
  reportOptions("waits", endpoints.getWaits, { start_at: startAt, namespace: namespace || null });
