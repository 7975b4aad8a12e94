// A sentence with words of it covered: its words, and what is written then.

const END = "<eos>";
const LETTER = /[\p{L}\p{N}\ufffd]/u; // or a part of one

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

/** What a model writes if its decoder may not look at `covered` places;
 * `looked` is the mean of all heads, in hundredths. */
export async function written(model, text, covered) {
  const { found } = await model.beam(text, { beamSize: 1, covered });
  const { ids, text: said, tokens } = found[0];
  const { source, target, mean } = model.looking(text, ids, covered);
  const looked = target.map((_, t) =>
    source.map((_, s) => Math.round(100 * mean(t, s))),
  );
  const words = wordsIn(model.tokenizer, ids);
  return { covered, said, tokens, looked, words };
}

/** The words of some ids. */
export const wordsIn = (tokenizer, ids) =>
  wordsOf(tokenizer.pieces(ids), (places) =>
    tokenizer.decode(places.map((place) => ids[place])).trim(),
  );

/** A sentence that was recorded, with its words. */
export function open(one) {
  const states = one.states.map((state) => ({
    ...state,
    words: wordsOf(state.tokens),
  }));
  return { ...one, states, words: wordsOf(one.source) };
}

/** The words that are covered once one was touched: it alone, or none.
 *
 * `also`: beside those that were covered before.
 */
export function touched(hidden, number, also) {
  const alone = hidden.has(number) && hidden.size === 1;
  if (!also) return new Set(alone ? [] : [number]);
  const both = new Set(hidden);
  if (!both.delete(number)) both.add(number);
  return both;
}

/** The places of the covered words' tokens. */
export const placesOf = ({ words }, hidden) =>
  words.flatMap(({ places }, number) => (hidden.has(number) ? places : []));

/** What is known of a sentence with these words covered. */
export function recalled(sentence, hidden) {
  const now = String(placesOf(sentence, hidden));
  return sentence.states.find(({ covered }) => String(covered) === now);
}

/** How much of its attention a word paid to another, from 0 to 1. */
export function attention(rows, to, from) {
  const sums = to.map((t) => from.reduce((sum, s) => sum + rows[t][s], 0));
  return sums.reduce((sum, one) => sum + one, 0) / to.length / 100;
}

const listed = (names) =>
  names.length > 1
    ? `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`
    : names[0];

/** What is read aloud. */
export function spoken({ words }, state, hidden) {
  const ended = (text) => text.replace(/[^.?!…]$/, "$&.");
  const now = state.means
    ? `${ended(state.said)} That is: ${ended(state.means)}`
    : state.said;
  const names = words
    .filter((_, number) => hidden.has(number))
    .map(({ text }) => text);
  return names.length
    ? `Covered: ${listed(names)}. Now: ${now}`
    : `Nothing is covered. ${now}`;
}
