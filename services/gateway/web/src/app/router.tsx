import { createBrowserRouter, useRouteError } from "react-router";
import { Empty, Failure } from "@/components/page";
import { FleetPage } from "@/features/fleet/fleet-page";
import { Shell } from "./shell";

export const router = createBrowserRouter([
  {
    Component: Shell,
    ErrorBoundary: BrokenPage,
    children: [
      { index: true, Component: FleetPage, ErrorBoundary: BrokenPage },
      { path: "*", Component: NoSuchPage },
    ],
  },
]);

function BrokenPage() {
  const error = useRouteError();
  return <Failure error={error instanceof Error ? error : new Error(String(error))} />;
}

function NoSuchPage() {
  return <Empty title="There is no such page">The list on the left has those there are.</Empty>;
}
