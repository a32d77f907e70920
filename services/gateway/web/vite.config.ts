import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import react from "@vitejs/plugin-react";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";
import { glossary } from "./glossary.ts";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** Packs once what the gateway would pack for every browser. */
function packed(): Plugin {
  let directory = "";
  return {
    name: "packed",
    apply: "build",
    configResolved: (config) => void (directory = config.build.outDir),
    closeBundle() {
      for (const entry of readdirSync(directory, { recursive: true, withFileTypes: true })) {
        const path = join(entry.parentPath, entry.name);
        if (entry.isFile() && /\.(js|css|html|svg)$/.test(entry.name)) {
          writeFileSync(`${path}.gz`, gzipSync(readFileSync(path), { level: 9 }));
        }
      }
    },
  };
}

export default defineConfig({
  plugins: [react(), glossary(here("../../../docs/glossary.md")), packed()],
  resolve: { alias: { "@schemas": here("../../../schemas/exported"), "@": here("src") } },
  build: { outDir: here("dist"), emptyOutDir: true, target: "es2022", chunkSizeWarningLimit: 900 },
  server: {
    proxy: Object.fromEntries(
      ["/api", "/readyz", "/ws"].map((path) => [
        path,
        { target: process.env.GPUSTEWARD_URL ?? "http://127.0.0.1:8470", ws: true },
      ]),
    ),
  },
  test: { include: ["src/**/*.test.{ts,tsx}"] },
});
