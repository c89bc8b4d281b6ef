// Elements made from data. Text is set as text and never parsed.

const SVG = "http://www.w3.org/2000/svg";

export function html(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

// Touches the page only where something changed, so that a selection in it survives.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setAttribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

// As wide as its widest text so far: figures that change push nothing about.
export function keepWidth(element, text, widths, key) {
  const width = Math.max(widths.get(key) ?? 0, text.length);
  widths.set(key, width);
  element.style.minWidth = `${width}ch`;
}

// A colour from data may be a colour and nothing else.
export function ink(colour) {
  return /^#[0-9a-f]{3,8}$/i.test(colour) ? colour : "currentColor";
}

const ruler = document.createElement("canvas").getContext("2d");

export function textWidth(text, font) {
  ruler.font = font;
  return ruler.measureText(text).width;
}

// The text, or as much of its beginning as there is room for.
export function shortened(text, room, font) {
  if (textWidth(text, font) <= room) return text;
  let [fits, over] = [0, text.length];
  while (over - fits > 1) {
    const middle = (fits + over) >> 1;
    if (textWidth(text.slice(0, middle) + "…", font) <= room) fits = middle;
    else over = middle;
  }
  return text.slice(0, fits) + "…";
}
