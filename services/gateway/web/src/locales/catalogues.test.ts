import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

const PLACES = /\{\w+\}|<\/?\d+\/?>/g;

function readMessages(path: string): { message: string; translation: string }[] {
  const text = (block: string, field: string) =>
    [...(block.split(`${field} `)[1]?.matchAll(/"((?:[^"\\]|\\.)*)"(?:\n|$)/gy) ?? [])]
      .map(([, part]) => part)
      .join("");
  return readFileSync(path, "utf8")
    .split("\n\n")
    .map((block) => ({ message: text(block, "msgid"), translation: text(block, "msgstr") }))
    .filter(({ message }) => message !== "");
}

test("a translation keeps the places and links of its message", () => {
  const messages = readMessages("src/locales/zh.po");
  const places = (text: string) => new Set(text.match(PLACES));

  const wrong = messages.filter(
    ({ message, translation }) =>
      translation !== "" && places(translation).symmetricDifference(places(message)).size > 0,
  );

  expect(messages.length).toBeGreaterThan(50);
  expect(wrong).toEqual([]);
});
