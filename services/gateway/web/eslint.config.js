import { createNodeResolver, importX } from "eslint-plugin-import-x";
import a11y from "eslint-plugin-jsx-a11y";
import lingui from "eslint-plugin-lingui";
import hooks from "eslint-plugin-react-hooks";
import { defineConfig } from "eslint/config";
import tseslint from "typescript-eslint";

const SOURCES = ["**/*.{ts,tsx}"];

// lib -> domain -> components -> features -> app: each imports only what stands before it, by @/
// alone, and a feature no other.
const ZONES = [
  { files: ["src/lib/**"], closed: ["@/domain/*", "@/components/*", "@/features/*", "@/app/*"] },
  { files: ["src/domain/**"], closed: ["@/components/*", "@/features/*", "@/app/*"] },
  { files: ["src/components/**"], closed: ["@/features/*", "@/app/*"] },
  { files: ["src/features/**"], closed: ["@/features/*", "@/app/*"] },
];

const NAMES = {
  selector:
    ":matches(VariableDeclarator > .id, :function > .params, ArrayPattern > *)[name=/^(each|found|wanted|known|held|given|left|own|told|asked|said)$/]",
  message: "A variable is named by a noun that says what it holds.",
};

const PLURALS = {
  selector: "ImportSpecifier[imported.name=/^(plural|Plural|selectOrdinal|SelectOrdinal)$/]",
  message: "src/lib/language.ts reads text and {places} alone: choose between two messages.",
};

const QUESTIONS = {
  selector: "Property[key.name=/^(queryKey|queryFn|mutationFn)$/]",
  message: "A question to the gateway lies in a folder api/, with its key.",
};

/** What a person reads is a message (t`...`, <Trans>): a word alone in small letters may be a name, a sentence is not. */
const UNTRANSLATED = {
  useTsTypes: true,
  ignore: [
    "^[^A-Za-z]*$",
    "^\\S*$",
    "^GPU Steward$",
    "\\dpx|px ",
    "^M\\d",
    "^[<0-9. ]+s$",
    "sans-serif|system-ui|monospace",
    // Commands, keys and the columns of a CSV are for programs.
    "^(export|gpusteward|journalctl|systemctl|#) ",
    "^mod \\+ K$",
    "^out of service$",
    "≤|^SLO |, n=|\\((m?s)\\)$",
    "^ttft:",
  ],
  ignoreNames: [
    { regex: { pattern: "^(columns|className|style|.*Class|d|font|transform|gridTemplate.*)$" } },
  ],
  ignoreFunctions: ["console.*", "*.matchMedia", "*.querySelector*", "*.closest", "URL", "Error"],
};

export default defineConfig(
  { ignores: ["dist", "node_modules"] },
  {
    files: SOURCES,
    extends: [
      tseslint.configs.strictTypeChecked,
      a11y.flatConfigs.recommended,
      hooks.configs.flat["recommended-latest"],
    ],
    languageOptions: {
      parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname },
    },
    plugins: { "import-x": importX },
    settings: {
      "import-x/parsers": { "@typescript-eslint/parser": [".ts", ".tsx"] },
      "import-x/resolver-next": [
        createNodeResolver({
          extensions: [".ts", ".tsx"],
          tsconfig: { configFile: `${import.meta.dirname}/tsconfig.json` },
        }),
      ],
    },
    rules: {
      "@typescript-eslint/consistent-type-imports": "error",
      // `onClick={() => close()}` is how an event is handled; a value lost elsewhere is still found.
      "@typescript-eslint/no-confusing-void-expression": ["error", { ignoreArrowShorthand: true }],
      // A number reads in a text as it is meant; null, undefined and objects do not.
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
      "import-x/no-cycle": "error",
      "max-lines": ["error", { max: 400 }],
      // What is wider or longer than its place scrolls by the keyboard too, and so takes the focus.
      "jsx-a11y/no-noninteractive-tabindex": [
        "error",
        { tags: [], roles: ["application", "log", "region", "tabpanel"] },
      ],
    },
  },
  { files: SOURCES, rules: { "no-restricted-syntax": ["error", NAMES, PLURALS] } },
  {
    files: SOURCES,
    ignores: ["src/**/api/*.ts", "src/lib/topics.ts", "**/*.test.{ts,tsx}"],
    rules: { "no-restricted-syntax": ["error", NAMES, PLURALS, QUESTIONS] },
  },
  {
    files: ["src/**/*.{ts,tsx}"],
    ignores: ["**/*.test.{ts,tsx}", "src/testing/**", "**/__mocks__/**", "src/**/api/*.ts"],
    plugins: { lingui },
    rules: { "lingui/no-unlocalized-strings": ["error", UNTRANSLATED] },
  },
  ...ZONES.map(({ files, closed }) => ({
    files,
    rules: {
      "no-restricted-imports": [
        "error",
        {
          patterns: [
            {
              group: closed,
              message: "What is shared lies in src/components, src/domain or src/lib.",
            },
            {
              regex: "^(\\.\\./)+(app|components|domain|features|lib)/",
              message: "From another folder of src by @/ alone.",
            },
          ],
        },
      ],
    },
  })),
);
