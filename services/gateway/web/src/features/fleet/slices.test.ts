import { expect, test } from "vitest";
import type { GpuView } from "@schemas/messages";
import { slicesOf } from "./slices";

const gpu = (fields: Partial<GpuView>): GpuView =>
  ({
    uuid: "GPU-1",
    index: 0,
    state: "free",
    parent_uuid: null,
    mig_profile: null,
    holders: [],
    holder: null,
    ...fields,
  }) as GpuView;
const holder = (name: string, shares: number) => ({
  reservation_id: name,
  shares,
  namespace: "a",
  holder: name,
  requester: "",
});
const drawn = (gpus: GpuView[]) =>
  slicesOf(gpus).map(({ slices }) =>
    slices.map(({ word, share }) => `${word} ${Math.round(share * 100)}`),
  );

test("holders have their shares of a GPU and the rest is free", () => {
  expect(
    drawn([gpu({ state: "held", holders: [holder("ann", 0.5), holder("bob", 0.25)] })]),
  ).toEqual([["ann 50", "bob 25", "free 25"]]);
  expect(drawn([gpu({})])).toEqual([["free 100"]]);
  expect(drawn([gpu({ state: "held", holder: "ann" })])).toEqual([["ann 100"]]);
});

test("MIG instances lie within their GPU, as large as their profile says", () => {
  const parent_uuid = "GPU-1";
  const instances = [
    gpu({ uuid: "MIG-2", index: 2, parent_uuid, mig_profile: "2g.20gb" }),
    gpu({
      uuid: "MIG-1",
      index: 1,
      parent_uuid,
      mig_profile: "3g.40gb",
      state: "held",
      holders: [holder("ann", 1)],
    }),
  ];
  const expected = [["3g.40gb ann 43", "2g.20gb free 29", "unpartitioned 29"]];

  expect(drawn([gpu({ mig_enabled: true }), ...instances])).toEqual(expected);
  expect(drawn(instances)).toEqual(expected);
});
