// Rows of text, changed in place so that scrolling, selections and the focus stay.

import { html, keepWidth, setAttribute, setText } from "./dom.js";

export function tablePart(host, view) {
  const head = html("tr");
  const body = html("tbody");
  const table = html("table", {}, html("thead", {}, head), body);
  const scroll = html("div", { class: "scroll", tabindex: "0", role: "group" }, table);
  const widths = new Map();
  host.append(scroll);
  body.addEventListener("click", (event) => {
    const row = event.target.closest("tr");
    const chosen = String(getSelection());
    if (row?.dataset.key === undefined || chosen) return;
    const { key, sets } = row.dataset;
    if (sets) view.step({ selected: null, asked: [[sets, key]] });
    else view.choose(key);
  });
  let sorts = [];
  head.addEventListener("click", (event) => {
    const place = [...head.children].indexOf(event.target.closest("th"));
    if (event.target.closest("button")) view.ask({ sort: sorts[place] });
  });
  return {
    draw(part) {
      setAttribute(scroll, "aria-label", part.title);
      const columns = part.columns.map((text, place) => ({ text, number: isNumber(part, place) }));
      matchCells(head, columns, (column) => html("th", { scope: "col" }), (cell, column) => {
        const place = [...head.children].indexOf(cell);
        fillHead(cell, column.text, part, place);
        setAttribute(cell, "class", column.number ? "number" : "");
      });
      sorts = part.sorts;
      table.classList.toggle("wraps", part.wraps);
      const rows = part.rows.length ? part.rows : [null];
      while (body.children.length > rows.length) body.lastChild.remove();
      while (body.children.length < rows.length) body.append(html("tr"));
      rows.forEach((row, place) => {
        if (row === null) fillEmpty(body.children[place], part);
        else fillRow(body.children[place], row, part, columns, view, keyOf(part, place));
      });
      if (part.rows.length) keepWidths(body.firstChild, part, widths);
    },
  };
}

function keyOf(part, place) {
  return part.keys[place] ?? (part.key === null ? undefined : part.rows[place][part.key]);
}

// A head that sorts is a button; the arrow is drawn by the style sheet.
function fillHead(cell, text, part, place) {
  if (!part.sorts.length) {
    setText(cell, text);
    return;
  }
  if (cell.firstElementChild?.tagName !== "BUTTON") {
    cell.replaceChildren(html("button", { type: "button", class: "link" }));
  }
  setText(cell.firstElementChild, text);
  setAttribute(cell, "aria-sort", part.order?.[0] === place ? part.order[1] : "none");
}

function isNumber(part, place) {
  return part.numeric[place] ?? false;
}

function matchCells(row, items, make, fill) {
  while (row.children.length > items.length) row.lastChild.remove();
  items.forEach((item, place) => {
    if (row.children.length <= place) row.append(make(item));
    fill(row.children[place], item, place);
  });
}

function fillEmpty(row, part) {
  delete row.dataset.key;
  const cell = { class: "empty", colspan: Math.max(1, part.columns.length) };
  row.replaceChildren(html("td", cell, part.empty));
  row.className = "";
}

function fillRow(row, texts, part, columns, view, key) {
  if (row.firstChild?.classList.contains("empty")) row.replaceChildren();
  if (key === undefined) delete row.dataset.key;
  else row.dataset.key = key;
  row.dataset.sets = part.sets;
  const isChosen = !part.sets && key === view.chosen();
  setAttribute(row, "class", key === undefined ? "" : isChosen ? "row chosen" : "row");
  matchCells(row, texts, () => html("td"), (cell, text, place) => {
    setAttribute(cell, "class", columns[place]?.number ? "number" : "");
    if (place === part.key) fillButton(cell, text, [part.sets, text].filter(Boolean).join(" "));
    else setText(cell, text);
  });
}

// One cell holds its whole column open.
function keepWidths(row, part, widths) {
  [...row.children].forEach((cell, place) => {
    if (!isNumber(part, place)) return;
    const texts = part.rows.map((texts) => texts[place]);
    keepWidth(cell, texts.reduce((one, other) => (other.length > one.length ? other : one)), widths, place);
  });
}

// The row's name can be reached with the keyboard.
function fillButton(cell, text, name) {
  if (cell.firstElementChild?.tagName !== "BUTTON") {
    cell.replaceChildren(html("button", { type: "button", class: "link" }));
  }
  setText(cell.firstElementChild, text);
  setAttribute(cell.firstElementChild, "aria-label", `open ${name}`);
}
