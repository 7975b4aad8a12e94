// Starts the live parts of a page: each lives in a module of its own.

// This may be here before the rest of the page is.
if (document.readyState === "loading")
  await new Promise((done) =>
    document.addEventListener("DOMContentLoaded", done),
  );

for (const place of document.querySelectorAll("[data-live]"))
  try {
    const part = `./${place.dataset.live}.js`;
    const page = await import(part).catch(() => {
      // A browser does not ask again for a module that was lost once.
      throw new Error(
        "This figure could not be loaded. Is there still a connection to " +
          "the site? Load the page again.",
      );
    });
    await page.start(place);
    const around = place.closest("section"); // its picture for paper
    around.querySelector(":scope > .tag_still")?.remove();
  } catch (error) {
    const note = document.createElement("p");
    note.className = "live-missing";
    note.setAttribute("role", "status");
    // Nothing is left in the part to try again with.
    note.textContent = error.message.replace(
      "Try again.",
      "Load the page again.",
    );
    place.replaceChildren(note);
  }
