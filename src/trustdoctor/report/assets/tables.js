/* Tables, which fold on a phone: every cell on a line of its own, with its head before it. */
const tables = (() => {
"use strict";
const { byId } = dom;

const heads = (table) => [...table.tHead.rows[0].cells].map((head) => head.textContent.trim());
const label = (table) => {
  const names = heads(table);
  for (const row of table.tBodies[0].rows) {
    [...row.cells].forEach((cell, i) => { cell.dataset.label = names[i]; });
  }
};
const fill = (id, rows) => {
  const table = byId(id);
  table.tBodies[0].replaceChildren(...rows.map((cells) => {
    const row = document.createElement("tr");
    for (const cell of cells) row.insertCell().textContent = cell;
    return row;
  }));
  label(table);
};
document.querySelectorAll("table.fold").forEach(label);
return { heads, label, fill };
})();
