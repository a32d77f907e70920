/** Styles that the first page does without; whatever is loaded after it waits for them. */
export const withLaterStyles = async <T>(loaded: Promise<T>): Promise<T> => {
  const [module] = await Promise.all([loaded, import("./later.css")]);
  return module;
};
