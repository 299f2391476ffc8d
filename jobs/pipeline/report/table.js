"use strict";
const key = (row, column) => row.cells[column].dataset.sort;
const empty = (value) => value === undefined || value === "";

function compare(a, b, numeric) {
  if (numeric) return Number(a) - Number(b);
  return a.localeCompare(b, "en", { numeric: true });
}

function sort(table, heading) {
  const column = heading.cellIndex;
  const down = heading.getAttribute("aria-sort") === "descending"
    || (!heading.hasAttribute("aria-sort") && !heading.classList.contains("number"));
  const sign = down ? 1 : -1;
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const known = rows.map((row) => key(row, column)).filter((value) => !empty(value));
  const numeric = heading.classList.contains("number") || known.every((v) => /^\d{1,2}$/.test(v));
  rows.sort((a, b) => {
    const [x, y] = [key(a, column), key(b, column)];
    if (empty(x) || empty(y)) return empty(x) - empty(y);
    return sign * compare(x, y, numeric);
  });
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", down ? "ascending" : "descending");
  body.append(...rows);
}

for (const table of document.querySelectorAll("table.sortable")) {
  for (const heading of table.tHead.rows[0].cells) {
    heading.firstElementChild.addEventListener("click", () => sort(table, heading));
  }
}

for (const input of document.querySelectorAll("input[data-filter]")) {
  const table = document.getElementById(input.dataset.filter);
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of table.tBodies[0].rows) {
      const text = [...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  });
}

// Where columns are out of sight, the heading says so.
const sideways = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    target.parentElement.classList.toggle("sideways", target.scrollWidth > target.clientWidth + 1);
  }
});
for (const one of document.querySelectorAll(".table > .scroll")) sideways.observe(one);
