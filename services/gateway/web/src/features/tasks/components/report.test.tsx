// @vitest-environment jsdom
import { render } from "@testing-library/react";
import { expect, test } from "vitest";
import { ReportText } from "./report";

test("a report is drawn with its headings and tables", () => {
  const { container } = render(
    <ReportText text={"# chat\n\n## The others\n\n| # | score |\n|---|---|\n| 5 | 3009 |\n"} />,
  );

  expect(container.querySelector("h2")?.textContent).toBe("chat");
  expect(container.querySelector("h3")?.textContent).toBe("The others");
  expect([...container.querySelectorAll("td")].map((cell) => cell.textContent)).toEqual([
    "5",
    "3009",
  ]);
});

test("markup and scripts in a report's names do nothing", () => {
  const { container } = render(
    <ReportText
      text={
        '# <img src=x onerror="window.bad = 1">\n\n[a](javascript:alert(1)) <script>window.bad = 1</script>\n'
      }
    />,
  );

  expect(container.querySelector("img, script")).toBeNull();
  expect(container.innerHTML).not.toContain("javascript:");
  expect("bad" in window).toBe(false);
});
