// @vitest-environment jsdom
import { act, renderHook } from "@testing-library/react";
import { beforeEach, expect, test } from "vitest";
import { removeView, saveView, useSavedViews } from "./saved-views";

beforeEach(() => localStorage.clear());

test("a view is kept by its name, saved again it is replaced", () => {
  const { result } = renderHook(() => useSavedViews("tasks"));

  act(() => void saveView("tasks", { name: "failed", search: "?state=failed" }));
  act(() => void saveView("tasks", { name: "mine", search: "?words=mine" }));
  act(() => void saveView("tasks", { name: "failed", search: "?state=failed,cancelled" }));

  expect(result.current.map(({ name, search }) => `${name} ${search}`)).toEqual([
    "mine ?words=mine",
    "failed ?state=failed,cancelled",
  ]);
  act(() => void removeView("tasks", "mine"));
  expect(result.current).toHaveLength(1);
  expect(renderHook(() => useSavedViews("task")).result.current).toEqual([]);
});

test("what is no list of views in the browser's storage is left out", () => {
  localStorage.setItem("gpusteward-views-tasks", '{"a": 1}');
  expect(renderHook(() => useSavedViews("tasks")).result.current).toEqual([]);
  localStorage.setItem("gpusteward-views-tasks", '[3, {"name": "a", "search": "?b"}]');
  expect(renderHook(() => useSavedViews("tasks")).result.current).toHaveLength(1);
});
