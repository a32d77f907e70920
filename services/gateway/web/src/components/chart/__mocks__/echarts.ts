const ignore = () => undefined;

/** jsdom has no canvas: the page's tests look at a chart's title, its table and its empty state. */
export const init = () => ({
  on: ignore,
  getZr: () => ({ on: ignore }),
  resize: ignore,
  dispose: ignore,
  setOption: ignore,
  dispatchAction: ignore,
  isDisposed: () => false,
});

export const connect = ignore;
