// A walk through the shipped model in eight steps: how the plural of
// "trees" reaches the verb. Every number in the words is read from the
// model; what they claim beside, tests/site/test_zoom.py asserts.

import { percent } from "./common.js";
import { largest, low } from "./zoom_paths.js";

const COURIER = ["decoder", "2", "cross_attention", "2"];
const FROM_ME = "2"; // the row of "Me", which was read last
const TO_TREES = "3";
const CELL = [...COURIER, FROM_ME, TO_TREES];

/** The steps: where each is, the box that it points at, and its words.
 *
 * Null for a model of which nothing is told. Words are asked for when the
 * numbers of their place have been fetched.
 */
export function tour(model) {
  const told = model.tour;
  if (!told) return null;
  const { d_k, d_model } = model.sizes;
  const share = (name, ...at) =>
    percent(model.get(`${name}.weight`, ...at));
  const encoder = "encoder.layers.0.self_attention";
  const decoder = "decoder.layers.1.cross_attention";
  const products = () => {
    const query = model.get(`${decoder}.q`, 1, 1);
    const key = model.get(`${decoder}.k`, 1, 2);
    return query.map((one, i) => one * key[i]);
  };
  return [
    {
      path: () => [],
      words: () =>
        "“trees” is plural, so the Spanish verb must be: gustan, not gusta. " +
        "But the verb is written second, two words before the Spanish " +
        "trees. How much of the plural reaches it? Follow it, from the " +
        "English word to a single product and back.",
    },
    {
      path: () => ["encoder", "1", "self_attention", "2"],
      mark: "1",
      words: () =>
        "The encoder reads. In this head the word I looks at trees with " +
        `${share(encoder, 1, 0, 2)} of its weight, and <eos> with ` +
        `${share(encoder, 1, 3, 2)}: two places that have taken in something ` +
        "of the noun besides the noun itself.",
    },
    {
      path: () => ["encoder", "2", "feed_forward"],
      mark: "3",
      words: () =>
        "The four vectors at the right leave the encoder, and they are all " +
        "that the decoder sees of the English. Exchange the one of trees " +
        "by that of one tree, and the singular, gusta, rises from " +
        `${tiny(told.gusta)} to ${percent(told.alone[2])}. Exchange any ` +
        "other, and it hardly moves.",
    },
    {
      path: () => ["decoder", "1", "self_attention", "1"],
      mark: FROM_ME,
      words: () =>
        "Now the decoder writes. It has written Me, and among its own words " +
        "it can look at <bos> and at Me alone: the other cells of that " +
        "row are masked, because those words don't exist yet. There is no " +
        "plural to be had here.",
    },
    {
      path: () => COURIER,
      mark: FROM_ME,
      words: () =>
        "So it looks across. In the row of Me, this head of the second " +
        `layer gives trees ${share(decoder, 1, 1, 2)} of its weight. Is it ` +
        "the courier? The last step will show it. First, how it works.",
    },
    {
      path: () => CELL,
      words: () =>
        `How can it be so sure? Me has a query of ${d_k} numbers, what it ` +
        `asks for; trees has a key of ${d_k}, what it offers. Here they are ` +
        "multiplied, number by number, and the sum is the score.",
    },
    {
      path: () => [...CELL, `q${largest(products()) + 1}`],
      words: () => {
        const i = largest(products()) + 1;
        return (
          `The largest of those products has q${low(i)} in it, and this is ` +
          `how q${low(i)} was made: ${d_model} numbers of Me, times ` +
          `${d_model} weights that training found, added up. Below this ` +
          "there is nothing. It is multiplication all the way down."
        );
      },
    },
    {
      path: () => [...COURIER, FROM_ME, "values"],
      words: () =>
        `Back up: these ${d_k} numbers are what the courier brings. Put in ` +
        "what it would bring of one tree, and gusta becomes " +
        `${Math.round(told.courier / told.gusta)} times likelier. Exchange ` +
        "all four vectors, and gusta and gustan are neck and neck, " +
        `${percent(told.memory[0])} to ${percent(told.memory[1])}: after ` +
        "like, without an article, the model has only met plurals.",
    },
  ];
}

const tiny = (share) => `${(100 * share).toFixed(2)} %`;
