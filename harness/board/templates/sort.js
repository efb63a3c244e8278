"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  table.tHead.addEventListener("click", (event) => {
    const head = event.target.closest("th");
    if (!head) return;
    const way = head.dataset.way === "down" ? "up" : "down";
    for (const other of table.tHead.rows[0].cells) delete other.dataset.way;
    head.dataset.way = way;
    const value = (row) => {
      const text = row.cells[head.cellIndex].textContent.trim();
      const number = parseFloat(text.replace("−", "-").replace(/^[x×+]/, ""));
      return Number.isNaN(number) ? text : number;
    };
    const rows = [...table.tBodies].flatMap((one) => [...one.rows]).sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      const order = typeof x === typeof y ? (x < y ? -1 : x > y ? 1 : 0) : typeof x === "number" ? -1 : 1;
      return way === "down" ? -order : order;
    });
    body.append(...rows);
  });
}
for (const one of document.querySelectorAll(".filters")) one.hidden = false;
for (const one of document.querySelectorAll("[data-filter]")) {
  one.addEventListener("input", () => {
    const id = one.dataset.filter, asked = [...document.querySelectorAll(`[data-filter=${id}]`)];
    for (const row of document.getElementById(id).children) {
      row.hidden = !asked.every(({ value, tagName }) => tagName === "SELECT"
        ? !value || row.dataset.choice === value : row.firstElementChild.textContent.includes(value));
    }
  });
}
