// Sinusoids and masks, as transformer_lib computes them.

/** Dimension i of the encoding of position pos, section 3.5. */
export function sinusoid(pos, i, dModel) {
  const angle = angleOf(pos, i, dModel);
  return Math.fround(i % 2 ? Math.cos(angle) : Math.sin(angle));
}

export const angleOf = (pos, i, dModel) =>
  pos / 10000 ** ((i - (i % 2)) / dModel);

/** After how many positions dimension i begins again. */
export const wavelength = (i, dModel) =>
  (2 * Math.PI) / angleOf(1, i, dModel);

/** May each query attend to each key? Rows are queries. */
export const MASKS = {
  padding: (query, key, { length, pads }) => key < length - pads,
  causal: (query, key) => key <= query,
  decoder: (query, key, { length, pads }) =>
    key <= query && key < length - pads,
  neighbourhood: (query, key, { r }) =>
    Math.abs(query - key) <= Math.floor(r / 2),
};
