import type { IconName } from "@/components/icon";
import { paths } from "@/lib/paths";

export interface NavigationEntry {
  word: string;
  icon: IconName;
  to: string;
}

export const NAVIGATION: NavigationEntry[] = [
  { word: "Fleet", icon: "fleet", to: paths.fleet() },
  { word: "Tasks", icon: "tasks", to: paths.tasks() },
  { word: "Reservations", icon: "reservations", to: paths.reservations() },
  { word: "Queue", icon: "queue", to: paths.queue() },
  { word: "Monitoring", icon: "monitoring", to: paths.monitoring() },
  { word: "Reports", icon: "reports", to: paths.reports() },
  { word: "Admin", icon: "admin", to: paths.admin() },
];
