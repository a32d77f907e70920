// @vitest-environment jsdom
import { QueryClient, QueryObserver } from "@tanstack/react-query";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { followEvents } from "./events";

let send: (type: string) => void;

class FakeSocket {
  readyState = 1;
  onmessage?: (event: { data: string }) => void;
  constructor() {
    let cursor = 0;
    send = (type) =>
      this.onmessage?.({ data: JSON.stringify({ type, cursor: ++cursor, event: {} }) });
  }
  close(): void {
    this.readyState = 3;
  }
}

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal("WebSocket", FakeSocket);
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

/** Follows events and counts how often the GPUs are asked for; each answer takes a time. */
async function follow(answerMs: number) {
  const client = new QueryClient();
  const answers = { asked: 0, cutOff: 0 };
  const observer = new QueryObserver(client, {
    queryKey: ["gpus"],
    queryFn: async ({ signal }) => {
      answers.asked += 1;
      signal.addEventListener("abort", () => (answers.cutOff += 1));
      await new Promise((resolve) => setTimeout(resolve, answerMs));
      return answers.asked;
    },
  });
  const ends = [observer.subscribe(() => undefined), followEvents(client)];
  await vi.advanceTimersByTimeAsync(answerMs);
  answers.asked = 0;
  return { answers, end: () => ends.forEach((end) => end()) };
}

test("many events ask once", async () => {
  const { answers, end } = await follow(10);
  for (let count = 0; count < 20; count++) send("scheduler.reservation_granted");
  await vi.advanceTimersByTimeAsync(1_000);
  expect(answers.asked).toBe(1);
  end();
});

test("events that go on cut no question off", async () => {
  const { answers, end } = await follow(700);
  for (let count = 0; count < 40; count++) {
    send("scheduler.reservation_granted");
    await vi.advanceTimersByTimeAsync(100);
  }
  await vi.advanceTimersByTimeAsync(2_000);
  expect(answers.cutOff).toBe(0);
  expect(answers.asked).toBe(6); // each 0.2 s after the answer before, and the last of all
  end();
});

test("an answer that does not come holds up the next question for seconds alone", async () => {
  const { answers, end } = await follow(60_000);
  send("scheduler.reservation_granted");
  await vi.advanceTimersByTimeAsync(1_000);
  send("scheduler.reservation_granted");
  await vi.advanceTimersByTimeAsync(6_000);
  expect(answers.asked).toBe(2);
  end();
});

test("nothing is asked once it is not followed", async () => {
  const { answers, end } = await follow(10);
  send("scheduler.reservation_granted");
  end();
  await vi.advanceTimersByTimeAsync(5_000);
  expect(answers.asked).toBe(0);
});
