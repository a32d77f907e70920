// @vitest-environment jsdom
import { render } from "@testing-library/react";
import { expect, test } from "vitest";
import { highlighted } from "./highlighted";

function marked(text: string): string[] {
  const { container } = render(<pre>{highlighted(text)}</pre>);
  expect(container.textContent).toBe(text);
  return [...container.querySelectorAll("span")].map(
    (span) => `${span.className.replaceAll(/_|[0-9a-f]{5,}/g, "")} ${span.textContent}`,
  );
}

test("keys, texts, numbers and comments of YAML are told apart", () => {
  const parts = marked(
    '# a task\nmodel:\n  id_or_path: Qwen/Qwen3-8B\nslots: [8, true]\nname: "x: 1"\n',
  );

  expect(parts.map((part) => part.split(" ").slice(1).join(" "))).toEqual([
    "# a task",
    "model",
    "id_or_path",
    "slots",
    "8",
    "true",
    "name",
    '"x: 1"',
  ]);
});

test("a quoted word before a colon is a key of JSON, no text", () => {
  expect(marked('{"slots": [8], "name": "8"}').map((part) => part.split(" ").at(-1))).toEqual([
    '"slots"',
    "8",
    '"name"',
    '"8"',
  ]);
});

test("markup in a file stays text", () => {
  const { container } = render(<pre>{highlighted("<img src=x onerror=alert(1)>")}</pre>);

  expect(container.querySelector("img")).toBeNull();
  expect(container.textContent).toBe("<img src=x onerror=alert(1)>");
});
