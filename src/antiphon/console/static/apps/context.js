// What an App learns of the page around it: colours, fonts, language. The names are those of the specification.

/** Returns what an App learns. @param {string} theme @param {Record<string, string>} tokens The tokens of the page by variable of Apps. */
export function hostContext(theme, tokens) {
  const style = getComputedStyle(document.documentElement);
  const variables = Object.fromEntries(Object.entries(tokens).map(([name, token]) => [name, style.getPropertyValue(token).trim()]));
  return {
    theme,
    styles: { variables },
    locale: navigator.language,
    timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone,
    userAgent: "antiphon-console",
    platform: "web",
    deviceCapabilities: { touch: navigator.maxTouchPoints > 0, hover: matchMedia("(hover: hover)").matches },
  };
}
