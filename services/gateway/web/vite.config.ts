import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, gzipSync } from "node:zlib";
import { lingui } from "@lingui/vite-plugin";
import react from "@vitejs/plugin-react";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";
import { glossary } from "./glossary.ts";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** What Brotli has to save for a file to be there in it too: browsers take it over TLS or from their own host alone. */
const BROTLI_SAVES_BYTES = 3100;

/** Packs once what the gateway would pack for every browser. */
function compressAssets(): Plugin {
  let directory = "";
  return {
    name: "packed",
    apply: "build",
    configResolved: (config) => void (directory = config.build.outDir),
    closeBundle() {
      for (const entry of readdirSync(directory, { recursive: true, withFileTypes: true })) {
        const path = join(entry.parentPath, entry.name);
        if (entry.isFile() && /\.(js|css|html|svg)$/.test(entry.name)) {
          const content = readFileSync(path);
          const [gzip, brotli] = [gzipSync(content, { level: 9 }), brotliCompressSync(content)];
          writeFileSync(`${path}.gz`, gzip);
          if (gzip.length - brotli.length >= BROTLI_SAVES_BYTES) {
            writeFileSync(`${path}.br`, brotli);
          }
        }
      }
    },
  };
}

/** Styles of Mantine are taken file by file: fails the build where a component in use has none. */
function requireStyles(): Plugin {
  const classesIn = (text: string) => new Set(text.match(/\bm_[0-9a-f]{6,8}\b/g));
  const whole = readFileSync(here("node_modules/@mantine/core/styles.css"), "utf8");
  return {
    name: "styled",
    apply: "build",
    generateBundle(_, bundle) {
      const files = Object.values(bundle);
      const used = classesIn(files.map((file) => (file.type === "chunk" ? file.code : "")).join());
      const styles = classesIn(
        files.map((file) => (file.type === "asset" ? String(file.source) : "")).join(),
      );
      const missing = [...classesIn(whole)].filter((name) => used.has(name) && !styles.has(name));
      if (missing.length > 0) {
        this.error(
          `expected the styles of every component of Mantine in src/app/mantine.css; none for ${missing.join()}`,
        );
      }
    },
  };
}

export default defineConfig({
  plugins: [
    // A message stays in the code in English, so that English readers fetch no catalogue.
    lingui({ macroTransform: { macro: { descriptorFields: "message" } } }),
    react(),
    glossary(here("../../../docs/reference/glossary.md")),
    requireStyles(),
    compressAssets(),
  ],
  resolve: { alias: { "@schemas": here("../../../schemas/exported"), "@": here("src") } },
  build: {
    outDir: here("dist"),
    emptyOutDir: true,
    target: "es2022",
    chunkSizeWarningLimit: 900,
    // What the first page needs anyway is one file, not one for each set of pages that share something.
    rolldownOptions: {
      output: { codeSplitting: { groups: [{ name: "first", tags: ["$initial"] }] } },
    },
  },
  server: {
    proxy: Object.fromEntries(
      ["/api", "/readyz", "/ws"].map((path) => [
        path,
        { target: process.env.GPUSTEWARD_URL ?? "http://127.0.0.1:8470", ws: true },
      ]),
    ),
  },
  test: {
    include: ["src/**/*.test.{ts,tsx}"],
    // Files of one worker share what they import; a test leaves nothing behind (src/testing).
    isolate: false,
    maxWorkers: 2,
    testTimeout: 30_000,
  },
});
