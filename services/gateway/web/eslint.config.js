import a11y from "eslint-plugin-jsx-a11y";
import hooks from "eslint-plugin-react-hooks";
import tseslint from "typescript-eslint";

// lib -> components -> features -> app: each imports only what stands before it, by @/ alone, and
// a feature no other.
const ZONES = [
  { files: ["src/lib/**"], closed: ["@/components/*", "@/features/*", "@/app/*"] },
  { files: ["src/components/**"], closed: ["@/features/*", "@/app/*"] },
  { files: ["src/features/**"], closed: ["@/features/*", "@/app/*"] },
];

export default tseslint.config(
  { ignores: ["dist", "node_modules"] },
  ...tseslint.configs.strict,
  a11y.flatConfigs.recommended,
  hooks.configs.flat["recommended-latest"],
  { rules: { "@typescript-eslint/consistent-type-imports": "error" } },
  ...ZONES.map(({ files, closed }) => ({
    files,
    rules: {
      "no-restricted-imports": [
        "error",
        {
          patterns: [
            { group: closed, message: "What is shared lies in src/components or src/lib." },
            {
              regex: "^(\\.\\./)+(app|components|features|lib)/",
              message: "From another folder of src by @/ alone.",
            },
          ],
        },
      ],
    },
  })),
);
