/* Draws the charts of a page when the reader comes near one of them.

   What draws them weighs more than a page, so it is loaded then and not
   before. Until it has come, and where it does not, a picture of each
   chart as it begins is in its place. */
(function () {
  "use strict";
  var CHARTS = new URL("charts.js", document.currentScript.src).href;
  var NEAR = "600px";
  var asked = false;

  function draw(waiting) {
    var script = document.createElement("script");
    script.textContent = waiting.textContent;
    var still = waiting.nextElementSibling;
    waiting.replaceWith(script); // which runs it
    if (still && still.matches(".chart-still")) still.remove();
  }

  function drawAll() {
    if (asked || !document.querySelector(".chart-still")) return;
    asked = true;
    var script = document.createElement("script");
    script.src = CHARTS;
    script.onload = function () {
      document.querySelectorAll('script[type="text/chart"]').forEach(draw);
    };
    document.head.append(script);
  }

  window.addEventListener("beforeprint", drawAll);
  document.addEventListener("DOMContentLoaded", function () {
    var near = new IntersectionObserver(
      function (seen) {
        if (seen.some(function (one) { return one.isIntersecting; })) {
          near.disconnect();
          drawAll();
        }
      },
      { rootMargin: NEAR }
    );
    document.querySelectorAll(".chart-still").forEach(function (picture) {
      near.observe(picture);
    });
  });
})();
