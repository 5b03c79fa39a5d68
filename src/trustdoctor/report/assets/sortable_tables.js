/* Tables that can be sorted, and saved as CSV. */
const sortableTables = (() => {
"use strict";
const { byId } = dom;
const { heads, label } = tables;

/* A cell is a text, or { text, value, image, head, wide }. Where only some of the rows are
   shown, all of them are saved. */
const put = (table, rows, every) => {
  table.every = every;
  table.tBodies[0].replaceChildren(...rows.map((cells) => {
    const row = document.createElement("tr");
    for (const content of cells) {
      const cell = typeof content === "object" ? content : { text: content };
      const node = document.createElement(cell.head ? "th" : "td");
      if (cell.head) node.scope = "row";
      if (cell.value !== undefined) node.dataset.value = cell.value ?? "";
      if (cell.wide) node.className = "text";
      if (cell.image) {
        const image = document.createElement("img");
        image.src = cell.image;
        image.alt = cell.text;
        node.append(image);
      } else {
        const text = document.createElement("bdi");
        text.textContent = cell.text;
        node.append(text);
      }
      row.append(node);
    }
    return row;
  }));
  label(table);
  if (table.sorted) arrange(table, table.sorted.column, table.sorted.down);
};

const arrange = (table, column, down) => {
  const key = (row) => {
    const cell = row.cells[column], value = cell.dataset.value;
    return value === undefined ? cell.textContent : value === "" ? -Infinity : Number(value);
  };
  const rows = [...table.tBodies[0].rows].sort((a, b) => {
    const x = key(a), y = key(b);
    const order = typeof x === "string" ? x.localeCompare(y, undefined, { numeric: true }) : x - y;
    return down ? -order : order;
  });
  table.tBodies[0].append(...rows);
};
const sortable = (table) => {
  const cells = [...table.tHead.rows[0].cells];
  cells.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") !== "descending";
    cells.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    table.sorted = { column, down };
    arrange(table, column, down);
  }));
};

/* What a spreadsheet would take for a formula is led by an apostrophe. */
const quote = (text) => {
  const plain = /^[=+\-@\t\r]/.test(text) && !/^[-+]?[\d.]+(e[-+]?\d+)?$/i.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(plain) ? `"${plain.replace(/"/g, '""')}"` : plain;
};
/* Data for a spreadsheet: an estimate takes three columns, and numbers have no commas. */
const INTERVAL = /^(\S+) \[(\S+), (\S+)\]$/;
const GROUPED = /^\d{1,3}(,\d{3})+$/;
const saved = (table) => table.every?.map((cells) => cells.map((cell) => cell.text ?? cell)) ??
  [...table.tBodies[0].rows].map((row) => [...row.cells]
    .map((cell) => cell.textContent || cell.querySelector("img")?.alt || ""));
const csv = (table) => {
  const rows = saved(table), names = heads(table);
  const wide = names.map((_, i) => rows.some((row) => INTERVAL.test(row[i])));
  const parts = (text, i) => (wide[i] ? INTERVAL.exec(text)?.slice(1) ?? [text, "", ""]
    : [GROUPED.test(text) ? text.replace(/,/g, "") : text]);
  const lines = [names.flatMap((name, i) => (wide[i] ? [name, `${name} low`, `${name} high`] : [name])),
    ...rows.map((row) => row.flatMap(parts))];
  return lines.map((line) => line.map(quote).join(",") + "\r\n").join("");
};
const save = (button) => button.addEventListener("click", () => {
  const name = button.dataset.table;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(["\ufeff", csv(byId(name))], { type: "text/csv" }));
  link.download = `${name}.csv`;
  link.click();
  URL.revokeObjectURL(link.href);
});

document.querySelectorAll("table.sortable").forEach(sortable);
document.querySelectorAll("button.save").forEach(save);
return { put };
})();
