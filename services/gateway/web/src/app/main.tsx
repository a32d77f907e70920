import "@mantine/core/styles.css";
import "@mantine/spotlight/styles.css";
import "./styles.css";
import { createTheme, MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { RouterProvider } from "react-router";
import { queryClient } from "@/lib/query-client";
import { router } from "./router";

const theme = createTheme({
  primaryColor: "blue",
  primaryShade: 8,
  autoContrast: true,
  defaultRadius: "sm",
  fontFamily: "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif",
  respectReducedMotion: true,
});

// A page open while a newer one was built asks for a chunk that is no more.
window.addEventListener("vite:preloadError", () => window.location.reload());

const root = document.getElementById("root");
if (root) {
  createRoot(root).render(
    <StrictMode>
      <MantineProvider theme={theme} defaultColorScheme="auto">
        <QueryClientProvider client={queryClient}>
          <RouterProvider router={router} />
        </QueryClientProvider>
      </MantineProvider>
    </StrictMode>,
  );
}
