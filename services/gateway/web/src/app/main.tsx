import "./mantine.css";
import "./styles.css";
import { Combobox, createTheme, MantineProvider } from "@mantine/core";
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
  // A closed list that is there is laid out, and with it the page, whenever its field is drawn.
  components: { Combobox: Combobox.extend({ defaultProps: { keepMounted: false } }) },
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
