import { i18n, type Messages } from "@lingui/core";

/** The languages of the page, each in its own words. */
export const LANGUAGES = { en: "English", zh: "中文" };

export type Language = keyof typeof LANGUAGES;

const STORED = "gpusteward-language";
const CATALOGUES: Partial<Record<Language, () => Promise<{ messages: Messages }>>> = {
  zh: () => import("@/locales/zh.po"),
};

/** Return the language that was chosen here before, else the browser's, else English. */
function preferredLanguage(): Language {
  const tags = [localStorage.getItem(STORED) ?? "", ...navigator.languages];
  const languages = tags.map((tag) => tag.toLowerCase().split("-")[0]);
  return languages.find((language) => isLanguage(language)) ?? "en";
}

function isLanguage(name: string | undefined): name is Language {
  return name !== undefined && name in LANGUAGES;
}

/** Draw the page anew: texts are made where a module is loaded, too. */
export function changeLanguage(language: Language): void {
  localStorage.setItem(STORED, language);
  window.location.reload();
}

/** English lies in the code: text and {places}, no plurals, so that no browser fetches a parser of ICU. */
const readEnglish: Parameters<typeof i18n.setMessagesCompiler>[0] = (message) =>
  message.split(/\{(\w+)\}/).map((part, index) => (index % 2 === 1 ? [part] : part));

/** Outside a browser, as where units are tested, English. */
export const language = "window" in globalThis ? preferredLanguage() : "en";
i18n.setMessagesCompiler(readEnglish);
// Whoever imports this module has the language before its first text.
i18n.loadAndActivate({
  locale: language,
  messages: (await CATALOGUES[language]?.())?.messages ?? {},
});

export { i18n };
