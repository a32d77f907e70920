import "./mantine.css";
import "./styles.css";
import { I18nProvider } from "@lingui/react";
import { Combobox, createTheme, MantineProvider, type MantineColorsTuple } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { RouterProvider } from "react-router";
import { gpusOptions } from "@/lib/api/get-gpus";
import { meOptions } from "@/lib/api/get-me";
import { nodesOptions } from "@/lib/api/get-nodes";
import { i18n, language } from "@/lib/language";
import { pause } from "@/lib/pause";
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

/** Of changes that end something, around --gs-bad: white on the seventh is legible. */
const RED: MantineColorsTuple = [
  "#fdeceb",
  "#fad6d3",
  "#f4aba5",
  "#ee8078",
  "#e45a50",
  "#d63f35",
  "#c62f26",
  "#b3261e",
  "#991f18",
  "#7f1913",
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
  colors: { accent: ACCENT, dark: NEUTRAL_DARK, red: RED },
  autoContrast: true,
  defaultRadius: "sm",
  fontFamily: "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif",
  respectReducedMotion: true,
  // A closed list that is there is laid out, and with it the page, whenever its field is drawn.
  components: { Combobox: Combobox.extend({ defaultProps: { keepMounted: false } }) },
});

document.documentElement.lang = language;

/** Drawn empty and then with its data, the first page takes longer than drawn once: it waits that long for them. */
const DATA_MS = 300;

async function fetchFirstData(): Promise<void> {
  if (window.location.pathname !== "/") return;
  // What fails is told by whoever shows it. What nodes say beside their GPUs is drawn when it is there.
  void queryClient.query(nodesOptions).catch(() => undefined);
  const fetched = Promise.allSettled([
    queryClient.query(meOptions),
    queryClient.query(gpusOptions),
  ]);
  await Promise.race([fetched, pause(DATA_MS)]);
}

const root = document.getElementById("root");
if (root) {
  await fetchFirstData();
  createRoot(root).render(
    <StrictMode>
      <I18nProvider i18n={i18n}>
        <MantineProvider theme={theme} defaultColorScheme="auto">
          <QueryClientProvider client={queryClient}>
            <RouterProvider router={router} />
          </QueryClientProvider>
        </MantineProvider>
      </I18nProvider>
    </StrictMode>,
  );
}
