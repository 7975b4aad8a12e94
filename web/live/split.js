// The sentences of a text, by the browser's own rules.

const TITLES = /(^|\s)(Mr|Mrs|Ms|Dr|Prof|St|Hr|Fr|Sr|Sra|Nr)\.\s*$/;

/** The sentences of a text; a title's full stop ends none. */
export function split(text, language) {
  if (!Intl.Segmenter) return [text.trim()];
  const options = { granularity: "sentence" };
  let cutter;
  try {
    cutter = new Intl.Segmenter(language, options);
  } catch {
    cutter = new Intl.Segmenter(undefined, options); // no language's code
  }
  const found = [];
  let begun = "";
  for (const { segment } of cutter.segment(text)) {
    begun += segment;
    if (TITLES.test(begun)) continue;
    if (begun.trim()) found.push(begun.trim());
    begun = "";
  }
  return begun.trim() ? [...found, begun.trim()] : found;
}
