// On narrow screens a cell stands alone, beside the head of its column.
const label = (root) => {
  for (const table of root.querySelectorAll(".scroll table:not(.heat)")) {
    const heads = [...table.tHead.rows[0].cells].map((head) => head.childNodes[0]?.textContent.trim() ?? "");
    for (const row of table.tBodies[0].rows)
      [...row.cells].forEach((cell, column) => { if (cell.colSpan === 1) cell.dataset.l = heads[column]; });
    table.classList.add("stack");
  }
};
label(document);

const unpack = async (box) => {
  const bytes = Uint8Array.from(atob(box.dataset.z), (char) => char.charCodeAt(0));
  box.removeAttribute("data-z");
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  box.innerHTML = await new Response(stream).text();
  label(box);
};
const opened = ({ target }) => target.open && target.querySelectorAll(":scope > [data-z]").forEach(unpack);
document.addEventListener("toggle", opened, true);

const follow = () => {
  const target = document.getElementById(location.hash.slice(1));
  for (let node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
  target?.scrollIntoView();
};
addEventListener("hashchange", follow);
follow();

for (const list of document.querySelectorAll(".trials")) {
  const heads = [...list.querySelector(".head").children];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (trial) => {
        const cell = trial.firstElementChild.children[column];
        const text = cell.dataset.v ?? cell.textContent.trim();
        const number = Number(text);
        return text === "" ? null : Number.isNaN(number) ? text : number;
      };
      const trials = [...list.querySelectorAll(":scope > details")].map((trial) => [key(trial), trial]);
      trials.sort(([a], [b]) => {
        if (a === null || b === null) return (a === null) - (b === null);
        const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
        return down ? -order : order;
      });
      list.append(...trials.map(([, trial]) => trial));
    });
  });
}
