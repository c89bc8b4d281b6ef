// How a series looks: colour, dash and marker, so that colour never stands alone.

import { ink, svg } from "./dom.js";

// Paths around (0, 0), as large as each other to the eye.
const MARKERS = {
  o: "M-3.2,0a3.2,3.2 0 1,0 6.4,0a3.2,3.2 0 1,0 -6.4,0Z",
  s: "M-2.9,-2.9H2.9V2.9H-2.9Z",
  "^": "M0,-3.8L3.6,2.7H-3.6Z",
  v: "M0,3.8L3.6,-2.7H-3.6Z",
  D: "M0,-4L4,0L0,4L-4,0Z",
  P: "M-1.4,-3.9H1.4V-1.4H3.9V1.4H1.4V3.9H-1.4V1.4H-3.9V-1.4H-1.4Z",
  X: "M-3.7,-1.9L-1.9,-3.7L0,-1.8L1.9,-3.7L3.7,-1.9L1.8,0L3.7,1.9L1.9,3.7L0,1.8L-1.9,3.7L-3.7,1.9L-1.8,0Z",
};

export function marker(line, x, y) {
  const place = `translate(${x.toFixed(1)},${y.toFixed(1)})`;
  const shape = { class: "marker", d: MARKERS[line.marker], transform: place };
  return svg("path", { ...shape, fill: ink(line.colour) });
}

export function hasMarker(line) {
  return Object.hasOwn(MARKERS, line.marker);
}

export const LINE_WIDTH = 1.6;

export function stroke(line) {
  const dash = line.dash.map((length) => (length * LINE_WIDTH).toFixed(1)).join(" ");
  return { stroke: ink(line.colour), "stroke-dasharray": dash || null };
}

// A short piece of the line for its legend.
export function swatch(line) {
  const picture = svg("svg", { class: "swatch", width: 26, height: 10, "aria-hidden": "true" });
  picture.append(svg("path", { class: "line", d: "M1,5H25", ...stroke(line) }));
  if (hasMarker(line)) picture.append(marker(line, 13, 5));
  return picture;
}
