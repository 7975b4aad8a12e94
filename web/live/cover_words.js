// Tokens as words, and what differs between two lines of them.

const END = "<eos>";
const LETTER = /[\p{L}\p{N}]/u;

/** The words and signs of some tokens, each with its tokens' places.
 *
 * A sign such as a full stop is no word; what has no space before it is
 * glued to what came before. `textOf(places)` is for tokens that hold a
 * part of a letter.
 */
export function wordsOf(tokens, textOf) {
  const found = [];
  tokens.forEach((token, place) => {
    if (token === END) return;
    const begins = token.startsWith("▁") || !found.length;
    const isWord = LETTER.test(token);
    const text = token.replaceAll("▁", "");
    const last = found.at(-1);
    if (!begins && isWord && last.isWord) {
      last.text += text;
      last.places.push(place);
    } else found.push({ text, places: [place], isWord, glued: !begins });
  });
  if (textOf) for (const word of found) word.text = textOf(word.places);
  return found;
}

/** What has to go from one line, and come into the other: by number.
 *
 * The longest words in common stay, in their order.
 */
export function align(before, after) {
  const kept = before.map(() => Array(after.length + 1).fill(0));
  kept.push(Array(after.length + 1).fill(0));
  for (let i = before.length - 1; i >= 0; i--)
    for (let j = after.length - 1; j >= 0; j--)
      kept[i][j] =
        before[i] === after[j]
          ? kept[i + 1][j + 1] + 1
          : Math.max(kept[i + 1][j], kept[i][j + 1]);
  const removed = new Set(before.keys());
  const added = new Set(after.keys());
  for (let i = 0, j = 0; i < before.length && j < after.length; )
    if (before[i] === after[j]) {
      removed.delete(i++);
      added.delete(j++);
    } else if (kept[i + 1][j] >= kept[i][j + 1]) i++;
    else j++;
  return { removed, added };
}
