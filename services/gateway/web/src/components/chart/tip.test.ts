import { expect, test } from "vitest";
import { tip } from "./tip";

test("what people wrote is text in a tooltip, not markup", () => {
  expect(tip('#1 name=<img src="x">', "a & b")).toBe(
    "#1 name=&lt;img src=&quot;x&quot;&gt;<br>a &amp; b",
  );
});
