import { t } from "@lingui/core/macro";
import type { IconName } from "@/components/icon";
import { paths } from "@/lib/paths";

export interface NavigationEntry {
  word: string;
  icon: IconName;
  to: string;
}

export const NAVIGATION: NavigationEntry[] = [
  { word: t`Fleet`, icon: "fleet", to: paths.fleet() },
  { word: t`Tasks`, icon: "tasks", to: paths.tasks() },
  { word: t`Reservations`, icon: "reservations", to: paths.reservations() },
  { word: t`Queue`, icon: "queue", to: paths.queue() },
  { word: t`Monitoring`, icon: "monitoring", to: paths.monitoring() },
  { word: t`Reports`, icon: "reports", to: paths.reports() },
  { word: t`Admin`, icon: "admin", to: paths.admin() },
];
