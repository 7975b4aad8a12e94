// What several interactive figures do with arrays of numbers.

/** Arrays of numbers in one. */
export function joined(arrays) {
  const size = arrays.reduce((sum, one) => sum + one.length, 0);
  const whole = new Float32Array(size);
  let at = 0;
  for (const one of arrays) {
    whole.set(one, at);
    at += one.length;
  }
  return whole;
}
