// The types of lib/views.js, which the console makes of the scripts of the App that shows artifacts.

/** Returns a table of records, or a tree that can be folded. */
export function dataView(value: unknown): HTMLElement;
/** Returns the nodes of a Markdown text; `openLink` gets the address of a link that was chosen. */
export function markdownView(text: string, openLink: (url: string) => void): HTMLElement;
/** Returns the rows of a text of separated values. */
export function separatedRows(text: string, separator: string): string[][];
/** Returns a table whose columns can be sorted. */
export function sortableTable(names: string[], rows: unknown[][], show?: (value: any) => Node | string): HTMLElement;
