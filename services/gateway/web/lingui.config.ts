import { defineConfig } from "@lingui/conf";
import { formatter } from "@lingui/format-po";

/** English is in the code; a further language is a further name here, and one in src/lib/language.ts. */
export default defineConfig({
  sourceLocale: "en",
  locales: ["zh"],
  catalogs: [
    { path: "<rootDir>/src/locales/{locale}", include: ["src"], exclude: ["**/*.test.*"] },
  ],
  // Where a text stands changes with every edit above it, and what it says does not.
  format: formatter({ origins: false }),
  // A text asks for its language through this module, which waits until the language is there.
  runtimeConfigModule: { i18n: ["@/lib/language", "i18n"] },
});
