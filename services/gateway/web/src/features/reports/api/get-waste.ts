import * as endpoints from "@schemas/endpoints";
import { reportOptions, type ReportScope } from "./report-options";

export const wasteOptions = ({ startAt, namespace }: ReportScope) =>
  reportOptions("waste", endpoints.getWaste, { start_at: startAt, namespace: namespace || null });
