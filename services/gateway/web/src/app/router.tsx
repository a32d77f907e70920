import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { createBrowserRouter, useRouteError, type RouteObject } from "react-router";
import { Empty, Failure } from "@/components/page";
import { FleetPage } from "@/features/fleet/fleet-page";
import { withLaterStyles } from "@/components/later-styles";
import { loadPart } from "@/lib/parts";
import { Shell } from "./shell";

const page = <K extends string>(load: () => Promise<Record<K, React.ComponentType>>, name: K) => ({
  lazy: async () => ({ Component: (await loadPart(() => withLaterStyles(load())))[name] }),
  ErrorBoundary: BrokenPage,
});

export const routes: RouteObject[] = [
  {
    Component: Shell,
    ErrorBoundary: BrokenPage,
    HydrateFallback: () => null,
    children: [
      { index: true, Component: FleetPage, ErrorBoundary: BrokenPage },
      { path: "gpus/:nodeId/:uuid", ...page(() => import("@/features/fleet/gpu-page"), "GpuPage") },
      { path: "nodes/:nodeId", ...page(() => import("@/features/fleet/node-page"), "NodePage") },
      { path: "queue", ...page(() => import("@/features/queue/queue-page"), "QueuePage") },
      {
        path: "reservations",
        ...page(() => import("@/features/reservations/reservations-page"), "ReservationsPage"),
      },
      { path: "tasks", ...page(() => import("@/features/tasks/tasks-page"), "TasksPage") },
      {
        path: "tasks/new",
        ...page(() => import("@/features/new-task/new-task-page"), "NewTaskPage"),
      },
      {
        path: "tasks/measure",
        ...page(() => import("@/features/new-task/measure-page"), "MeasurePage"),
      },
      { path: "tasks/:taskId", ...page(() => import("@/features/tasks/task-page"), "TaskPage") },
      {
        path: "experiments/:experimentId",
        ...page(() => import("@/features/experiments/experiment-page"), "ExperimentPage"),
      },
      {
        path: "compare",
        ...page(() => import("@/features/tasks/comparison-page"), "ComparisonPage"),
      },
      {
        path: "leaderboard",
        ...page(() => import("@/features/tasks/leaderboard-page"), "LeaderboardPage"),
      },
      {
        path: "monitoring",
        ...page(() => import("@/features/monitoring/monitoring-page"), "MonitoringPage"),
      },
      { path: "reports", ...page(() => import("@/features/reports/reports-page"), "ReportsPage") },
      { path: "admin", ...page(() => import("@/features/admin/admin-page"), "AdminPage") },
      { path: "account", ...page(() => import("@/features/account/account-page"), "AccountPage") },
      { path: "*", Component: NoSuchPage },
    ],
  },
];

export const router = createBrowserRouter(routes);

function BrokenPage() {
  const error = useRouteError();
  return <Failure error={error instanceof Error ? error : new Error(String(error))} />;
}

function NoSuchPage() {
  return (
    <Empty title={t`Page not found`}>
      <Trans>Use the navigation on the left.</Trans>
    </Empty>
  );
}
