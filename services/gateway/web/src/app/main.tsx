import "./mantine.css";
import "./styles.css";
import { Combobox, createTheme, MantineProvider, type MantineColorsTuple } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { RouterProvider } from "react-router";
import { queryClient } from "@/lib/query-client";
import { router } from "./router";

/** Around --gs-accent: the fourth is that of the dark scheme, the seventh that of the light one. */
const ACCENT: MantineColorsTuple = [
  "#eef5fe",
  "#dbe9fb",
  "#b7d3f8",
  "#8fbef9",
  "#6aa9f7",
  "#3f8ceb",
  "#1f76dc",
  "#0b63ce",
  "#0956b3",
  "#074a9b",
];

/** The dark half of the neutral scale, from --gs-text to below --gs-bg. */
const NEUTRAL_DARK: MantineColorsTuple = [
  "#e7eaee",
  "#c3cad3",
  "#a3acb8",
  "#858f9c",
  "#3b424b",
  "#2a3037",
  "#1c2025",
  "#14171b",
  "#101316",
  "#0c0e11",
];

const theme = createTheme({
  primaryColor: "accent",
  primaryShade: 7,
  colors: { accent: ACCENT, dark: NEUTRAL_DARK },
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
