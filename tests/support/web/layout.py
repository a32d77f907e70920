"""Measures of a drawn page: what is cut off, too small to hit, or too faint to read, in charts
too.
"""

from typing import Final

from playwright.async_api import Page

from tests.support.web.browser import TRANSITIONS_END, axe_findings

# WCAG 2.2: 1.4.3 for the contrast of text, 2.5.8 for the size of targets (axe's target-size).
LEAST_CONTRAST: Final = 4.5
TARGETS: Final = ["target-size"]

# Charts are pictures: the contrast of a text is that of its colour over the pixels below it.
WATCH_CHARTS: Final = """(() => {
  window.faintTexts = new Map();
  const draw = CanvasRenderingContext2D.prototype.fillText;
  const channel = value => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  };
  const luminance = ([red, green, blue]) =>
    0.2126 * channel(red) + 0.7152 * channel(green) + 0.0722 * channel(blue);
  const contrast = (one, two) => {
    const [dark, light] = [luminance(one), luminance(two)].sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  };
  const over = (color, alpha, below) =>
    color.map((value, index) => value * alpha + below[index] * (1 - alpha));
  const parse = css => {
    if (css.startsWith("#")) {
      return [1, 3, 5].map(at => parseInt(css.slice(at, at + 2), 16)).concat(1);
    }
    const [red, green, blue, alpha = 1] = css.match(/[\\d.]+/g).map(Number);
    return [red, green, blue, alpha];
  };
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const [red, green, blue, alpha] = parse(getComputedStyle(at).backgroundColor);
      if (alpha === 1) return [red, green, blue];
    }
    return [255, 255, 255];
  };
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...rest) {
    window.drawnAt = performance.now();
    if (typeof this.fillStyle === "string" && this.canvas.isConnected && String(text).trim()) {
      const width = this.measureText(text).width;
      const size = parseFloat(this.font.match(/([\\d.]+)px/)?.[1] ?? "12");
      const start = { center: -width / 2, right: -width, end: -width }[this.textAlign] ?? 0;
      const middle = { top: size / 2, middle: 0 }[this.textBaseline] ?? -size * 0.35;
      const [red, green, blue, alpha] = parse(this.fillStyle);
      const base = behind(this.canvas.parentElement);
      const ratios = [0.1, 0.5, 0.9].map(share => {
        const point = this.getTransform().transformPoint(
          new DOMPoint(x + start + width * share, y + middle));
        const [r, g, b, a] = this.getImageData(point.x, point.y, 1, 1).data;
        const below = over([r, g, b], a / 255, base);
        return contrast(over([red, green, blue], alpha * this.globalAlpha, below), below);
      });
      const ratio = Math.max(...ratios);
      const title = this.canvas.closest("[aria-label]")?.getAttribute("aria-label") ?? "chart";
      // As it was drawn last: a chart that changes its colours draws both for a while.
      if (ratio < LEAST) {
        window.faintTexts.set(`${title}: ${text}`, `${ratio.toFixed(2)} in ${this.fillStyle}`);
      } else {
        window.faintTexts.delete(`${title}: ${text}`);
      }
    }
    return draw.call(this, text, x, y, ...rest);
  };
})()""".replace("LEAST", str(LEAST_CONTRAST))

SETTLE_MS: Final = 1500  # charts are drawn, and what was typed is checked
QUIET_MS: Final = 500
SETTLED: Final = """([quiet, most]) => new Promise(resolve => {
  const began = performance.now();
  let changed = began;
  const observer = new MutationObserver(() => { changed = performance.now(); });
  observer.observe(document, {
    subtree: true, childList: true, attributes: true, characterData: true });
  const look = () => {
    const now = performance.now();
    if (now - Math.max(changed, window.drawnAt ?? 0) < quiet && now - began < most) {
      setTimeout(look, 50);
      return;
    }
    observer.disconnect();
    resolve();
  };
  look();
})"""

FORGET_TEXTS: Final = "() => window.faintTexts?.clear()"
FAINT_TEXTS: Final = (
    "() => [...(window.faintTexts ?? [])].map(([text, ratio]) => `${text}: ${ratio}`)"
)

# What lies beyond the window can be read only where it scrolls; what an ellipsis cuts says so.
CUT_TEXTS: Final = """() => {
  const cut = new Set();
  const root = document.documentElement;
  if (root.scrollWidth > innerWidth) cut.add(`the page is ${root.scrollWidth} px wide`);
  const isForReaders = (element, style) =>
    style.clipPath !== "none" || style.clip !== "auto" ||
    (element.clientWidth <= 1 && element.clientHeight <= 1 && style.display !== "inline");
  const fault = (element, box) => {
    if (box.right <= 0 || box.bottom <= 0) return "";
    for (let at = element; at !== document.body; at = at.parentElement) {
      const style = getComputedStyle(at);
      if (isForReaders(at, style)) return "";
      const frame = at.getBoundingClientRect();
      const isCut = box.right > frame.right + 1 || box.left < frame.left - 1;
      if (style.overflowX === "auto" || style.overflowX === "scroll") return "";
      if (style.overflowX !== "visible" && isCut) {
        return style.textOverflow === "ellipsis" ? "" : "cut off";
      }
    }
    return box.right > innerWidth + 1 || box.left < -1 ? "outside the window" : "";
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const isShown = element.checkVisibility({ visibilityProperty: true });
    if (!walker.currentNode.data.trim() || !isShown) continue;
    range.selectNodeContents(walker.currentNode);
    const word = fault(element, range.getBoundingClientRect());
    const tag = element.tagName.toLowerCase();
    if (word) cut.add(`${word}: ${tag} "${element.textContent.trim().slice(0, 60)}"`);
  }
  return [...cut];
}"""


async def watch_charts(page: Page) -> None:
    """Measure the contrast of every text that charts draw from the next address on."""
    await page.add_init_script(WATCH_CHARTS)


async def settle(page: Page) -> None:
    """Wait until nothing has changed for a while; not for ever, as readings arrive all the time."""
    await page.evaluate(SETTLED, [QUIET_MS, SETTLE_MS])


async def layout_findings(page: Page) -> list[str]:
    """Return what is cut off, too small a target or too faint in a chart, a line each."""
    await page.evaluate(TRANSITIONS_END)
    return [
        *(await page.evaluate(CUT_TEXTS)),
        *await contrast_findings(page),
        *await axe_findings(page, TARGETS),
    ]


async def contrast_findings(page: Page) -> list[str]:
    """Return what is too faint in a chart: all that another colour scheme may change."""
    faint: list[str] = await page.evaluate(FAINT_TEXTS)
    return [f"contrast below {LEAST_CONTRAST}: {each}" for each in faint]
