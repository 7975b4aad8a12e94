// The product of two matrices, in WebAssembly: mm.wat says what it does.
//
//     wat2wasm web/live/mm.wat -o - | base64

const BYTES = `
AGFzbQEAAAABDAFgCH9/f39/f39/AAIOAQJqcwZtZW1vcnkCAAEDAgEABwYBAm1tAAAK6AMB
5QMCCn8LeyAEQQJ0IQgDQEEAIQkDQCAAIAkgBmxqIQwgDCAGaiENIA0gBmohDiAOIAZqIQ8g
ASAKaiEQIAIgCmogCSAIbGohESAR/QAEACEVIBH9AAQQIRkgESAIaiERIBH9AAQAIRYgEf0A
BBAhGiARIAhqIREgEf0ABAAhFyAR/QAEECEbIBEgCGohESAR/QAEACEYIBH9AAQQIRwgBSEL
A0AgEP0ABAAhEyAQ/QAEECEUIBAgCGohECAM/QkCACESIBUgEiAT/eYB/eQBIRUgGSASIBT9
5gH95AEhGSAMIAdqIQwgDf0JAgAhEiAWIBIgE/3mAf3kASEWIBogEiAU/eYB/eQBIRogDSAH
aiENIA79CQIAIRIgFyASIBP95gH95AEhFyAbIBIgFP3mAf3kASEbIA4gB2ohDiAP/QkCACES
IBggEiAT/eYB/eQBIRggHCASIBT95gH95AEhHCAPIAdqIQ8gC0EBayELIAsNAAsgESAY/QsE
ACARIBz9CwQQIBEgCGshESARIBf9CwQAIBEgG/0LBBAgESAIayERIBEgFv0LBAAgESAa/QsE
ECARIAhrIREgESAV/QsEACARIBn9CwQQIAlBBGohCSAJIANJDQALIApBIGohCiAKIAhJDQAL
Cw==
`;

/** The function of mm.wat, and its memory of so many pages. */
export function product(pages) {
  try {
    const memory = new WebAssembly.Memory({ initial: pages });
    const bytes = Uint8Array.from(atob(BYTES), (one) => one.charCodeAt(0));
    const module = new WebAssembly.Module(bytes);
    const { exports } = new WebAssembly.Instance(module, { js: { memory } });
    return { memory, multiply: exports.mm };
  } catch {
    throw new Error(
      "This browser has no WebAssembly with SIMD, or too little memory: " +
        "a model needs both.",
    );
  }
}
