/** False where the browser forbids it; the text is selected then, for the keyboard. */
export async function copyToClipboard(text: string, element: HTMLElement | null): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // `navigator.clipboard` is there over HTTPS and on loopback alone.
  }
  if (element === null) return false;
  getSelection()?.selectAllChildren(element);
  // eslint-disable-next-line @typescript-eslint/no-deprecated -- the one way without HTTPS
  return document.execCommand("copy");
}
