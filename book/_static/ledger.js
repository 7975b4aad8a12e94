/* The ledger's filter: by section, state and chapter. What is chosen
   stands in the address, so that it can be linked and kept. */
(function () {
  "use strict";
  var rows = Array.from(document.querySelectorAll(".ledger-row"));
  var counts = document.querySelector(".ledger-counts");
  if (!rows.length || !counts) return;
  var FIELDS = [
    ["section", "section"],
    ["status", "state"],
    ["chapter", "chapter"],
  ];

  function value(row, field) {
    var found = Array.from(row.classList).find(function (name) {
      return name.indexOf(field + "-") === 0;
    });
    return found.slice(field.length + 1);
  }

  function title(row, field) {
    if (field === "status") return value(row, field);
    if (field === "chapter") {
      var link = row.querySelector("a:has(> .std-ref)");
      return link ? link.textContent : value(row, field);
    }
    var heading = row.closest("section").querySelector("h2, h3");
    return heading.firstChild.textContent;
  }

  var form = document.createElement("form");
  form.className = "ledger-filter";
  form.setAttribute("role", "search");
  form.setAttribute("aria-label", "Filter the statements");
  var asked = new URLSearchParams(location.search);
  var selects = {};
  FIELDS.forEach(function (pair) {
    var field = pair[0];
    var label = document.createElement("label");
    var select = document.createElement("select");
    select.name = field;
    select.add(new Option("all", ""));
    var seen = {};
    rows.forEach(function (row) {
      var name = value(row, field);
      if (seen[name]) return;
      seen[name] = true;
      select.add(new Option(title(row, field), name));
    });
    if (seen[asked.get(field)]) select.value = asked.get(field);
    label.append(pair[1] + " ", select);
    form.append(label);
    selects[field] = select;
  });
  var clear = document.createElement("button");
  clear.type = "button";
  clear.textContent = "Show all";
  var found = document.createElement("output");
  form.append(clear, found);
  counts.after(form);

  function filter() {
    var shown = 0;
    rows.forEach(function (row) {
      row.hidden = FIELDS.some(function (pair) {
        var wanted = selects[pair[0]].value;
        return wanted && wanted !== value(row, pair[0]);
      });
      if (!row.hidden) shown += 1;
    });
    document.querySelectorAll("section:has(> .ledger-row)").forEach(
      function (section) {
        section.hidden = !section.querySelector(".ledger-row:not([hidden])");
      }
    );
    found.textContent = shown + " of " + rows.length + " statements";
  }

  form.addEventListener("change", function () {
    filter();
    var chosen = new URLSearchParams();
    FIELDS.forEach(function (pair) {
      var wanted = selects[pair[0]].value;
      if (wanted) chosen.set(pair[0], wanted);
    });
    var query = chosen.toString();
    history.replaceState(
      null, "", location.pathname + (query ? "?" + query : "")
    );
  });
  clear.addEventListener("click", function () {
    form.reset();
    form.dispatchEvent(new Event("change"));
  });
  window.addEventListener("hashchange", function () {
    var target = document.getElementById(location.hash.slice(1));
    if (!target || !target.closest("[hidden]")) return;
    clear.click();
    target.scrollIntoView();
  });
  form.addEventListener("submit", function (event) {
    event.preventDefault();
  });
  filter();
})();
