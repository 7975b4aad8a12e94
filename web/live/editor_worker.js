// Runs Python beside the page, so that the page can stop it at any moment.
//
// It is told a script, where Pyodide is, and which files of the book the
// script imports. It answers with the bytes that have arrived, when the script
// begins, its lines as they are printed, and how it ended.

import { counting } from "./common.js";

const say = (kind, about = {}) => postMessage({ kind, ...about });
let python;

async function load(folder, files, checks = []) {
  const asked = self.fetch;
  self.fetch = async (...what) => {
    try {
      const answer = await asked(...what);
      if (!answer.ok) throw new Error(answer.statusText);
      const counted = counting(answer, (bytes) => say("loaded", { bytes }));
      return new Response(await counted.arrayBuffer(), answer);
    } catch (error) {
      say("lost"); // Pyodide would wait for it for ever
      throw error;
    }
  };
  const scripts = {};
  for (const name of ["pyodide.mjs", "pyodide.asm.mjs"]) {
    Object.assign(scripts, await import(`./${folder}/${name}`));
    say("loaded", { bytes: files[name] });
  }
  const found = await scripts.loadPyodide();
  // A package would come here: await found.loadPackage(ITS_ADDRESS)
  for (const name of checks) {
    found.FS.mkdirTree(name.replace(/\/.*/, ""));
    const text = await fetch(name.replace(/py$/, "txt"));
    found.FS.writeFile(name, await text.text());
  }
  const batched = (text) => say("printed", { text });
  found.setStdout({ batched });
  found.setStderr({ batched });
  return found;
}

onmessage = async ({ data: { script, name, folder, files, checks } }) => {
  try {
    python ??= await load(folder, files, checks);
  } catch {
    return say("lost");
  }
  say("began");
  const globals = python.toPy({ __name__: "__main__" });
  try {
    python.runPython(script, { globals, filename: name });
    say("ended");
  } catch (error) {
    say("failed", { trace: error.message });
  }
};
