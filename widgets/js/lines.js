// Series over time, or over numbers. All charts of a picture share the moment that is pointed at.

import { html, ink, keepWidth, setText, svg, textWidth } from "./dom.js";
import { clock, day, decimalsOf, number, quantity, tick, unitWord } from "./format.js";
import { hasMarker, marker, stroke, swatch } from "./marks.js";
import { axisOf, gapOf, linear, nearest, timeTicks } from "./scale.js";

const HEIGHT = 180;
const EDGE = { left: 44, right: 34, top: 20, bottom: 34 }; // alike, so that times line up
const TICK_ROOM = 64;
const WORD_HEIGHT = 12;
const TIME_WIDTH = 60;
const BESIDE_NAME = 88; // the line, the value and the gaps in a legend, in pixels
const DRAG_PX = 6;
const SHORTEST_ZOOM_S = 2;

export function linesPart(host, view) {
  return new LinesPart(host, view);
}

class LinesPart {
  constructor(host, view) {
    this.timed = true;
    this.view = view;
    this.plot = svg("svg", { class: "plot timed", height: HEIGHT, "aria-hidden": "true" });
    this.paper = svg("g");
    this.overlay = svg("g", { class: "overlay" });
    this.plot.append(this.paper, this.overlay);
    this.legend = legendOf();
    host.append(this.plot, this.legend.list);
    this.chart = null; // what is drawn now
    this.drag = null;
    const on = (name, listener) => this.plot.addEventListener(name, listener);
    on("pointermove", (event) => this.move(event));
    on("pointerleave", () => view.point(null));
    on("pointerdown", (event) => this.press(event));
    on("pointerup", (event) => this.release(event));
    on("pointercancel", () => this.endDrag());
  }

  draw(part, width, span) {
    this.plot.setAttribute("width", width);
    const chart = layOut(part, width, part.along ? null : span);
    this.chart = chart;
    this.plot.classList.toggle("timed", !part.along);
    this.paper.replaceChildren(...axes(chart), ...levels(chart), area(chart), ...ends(chart));
    this.legend.match(part);
    this.hover(this.view.pointedAt);
  }

  hover(time) {
    const { chart, drag, overlay, legend } = this;
    if (chart === null) return;
    const place = placeAt(chart, time);
    overlay.replaceChildren(...(drag ? [selection(chart, drag)] : []), ...crosshair(chart, place));
    legend.show(chart, place);
  }

  timeAt(event) {
    const { left, right, time } = this.chart;
    const x = event.clientX - this.plot.getBoundingClientRect().left;
    return time(Math.min(Math.max(x, left), right));
  }

  move(event) {
    if (this.chart === null) return;
    if (this.drag) this.drag.to = this.timeAt(event);
    this.view.point(this.timeAt(event));
  }

  press(event) {
    if (this.chart === null || event.button !== 0 || this.chart.part.along) return;
    this.plot.setPointerCapture(event.pointerId);
    this.drag = { from: this.timeAt(event), to: this.timeAt(event), x: event.clientX };
  }

  release(event) {
    const drag = this.endDrag();
    if (drag === null || Math.abs(event.clientX - drag.x) < DRAG_PX) return;
    const [from, to] = [drag.from, drag.to].sort((one, other) => one - other);
    this.view.zoom(from, Math.max(to, from + SHORTEST_ZOOM_S));
  }

  endDrag() {
    const { drag } = this;
    this.drag = null;
    this.hover(this.view.pointedAt);
    return drag;
  }
}

// ---------------------------------------------------------------- what all pieces share

function layOut(part, width, span) {
  const times = part.times_s;
  const [start, end] = span ?? [times[0] ?? 0, times.at(-1) ?? 1];
  const seen = times.length && times.at(-1) >= start && times[0] <= end;
  // One sample beyond each end, so that lines reach the edge.
  const first = seen ? Math.max(0, times.findIndex((time) => time >= start) - 1) : 0;
  const last = seen ? Math.min(times.length, times.findLastIndex((time) => time <= end) + 2) : 0;
  const values = part.lines.flatMap((line) => line.values.slice(first, last));
  const known = values.filter((value) => value !== null);
  const axis = valueAxis(part, known);
  const [left, right] = [EDGE.left, Math.max(EDGE.left + 20, width - EDGE.right)];
  const [top, bottom] = [EDGE.top, HEIGHT - EDGE.bottom];
  return {
    part, times, first, last, start, end, axis, left, right, top, bottom,
    decimals: decimalsOf(known),
    unitRoom: textWidth(unitWord(part.unit), "11px sans-serif"),
    empty: known.length === 0,
    gap: gapOf(times),
    x: linear(start, end, left, right),
    y: linear(axis.from, axis.to, bottom, top),
    time: linear(left, right, start, end),
  };
}

// Shares fill their axis. A level belongs to others only where it is in reach.
function valueAxis(part, known) {
  if (part.unit === "share") return axisOf(0, 1, { most: 5 });
  let [low, high] = [0, 0];
  for (const value of known) [low, high] = [Math.min(low, value), Math.max(high, value)];
  for (const level of part.levels) if (level.value <= 2 * high) high = Math.max(high, level.value);
  return axisOf(low, high || 1, { whole: known.every(Number.isInteger) });
}

// ---------------------------------------------------------------- drawing

function axes(chart) {
  const { axis, left, right, top, bottom, part } = chart;
  const found = [label(left, top - 9, unitWord(part.unit), { class: "label axis-unit" })];
  for (const value of axis.ticks) {
    const y = chart.y(value);
    found.push(svg("path", { class: value === 0 ? "base" : "grid", d: `M${left},${y}H${right}` }));
    found.push(label(left - 6, y + 3.5, tick(value, part.unit, axis.step), { class: "label end" }));
  }
  for (const [place, words] of part.along ? numberTicks(chart) : clockTicks(chart)) {
    const x = chart.x(place);
    found.push(svg("path", { class: "base", d: `M${x},${bottom}v4` }));
    found.push(label(x, bottom + 15, words, { class: "label middle" }));
  }
  const words = part.along || `local time, ${day(chart.end)}`;
  found.push(label(right, bottom + 29, words, { class: "label end muted" }));
  if (chart.empty) {
    const [x, y] = [(left + right) / 2, (top + bottom) / 2];
    found.push(label(x, y, "no data", { class: "label middle muted absent" }));
  }
  return found;
}

function clockTicks({ start, end, left, right }) {
  const { step, ticks } = timeTicks(start, end, (right - left) / TICK_ROOM);
  return ticks.map((time) => [time, clock(time, { short: step >= 60 })]);
}

function numberTicks({ start, end, left, right }) {
  const most = Math.max(1, Math.floor((right - left) / TICK_ROOM));
  const { step } = axisOf(0, Math.max(end - start, 1), { most, whole: true });
  const ticks = [];
  for (let at = Math.ceil(start / step) * step; at <= end; at += step) ticks.push([at, number(at, 0)]);
  return ticks;
}

function label(x, y, text, attributes) {
  return svg("text", { x, y, ...attributes }, text);
}

// Their words stand beside the plot, one below the other.
function levels(chart) {
  const { axis, left, right } = chart;
  const inReach = chart.part.levels.filter((level) => level.value <= axis.to);
  inReach.sort((one, other) => other.value - one.value);
  let lowest = -Infinity;
  return inReach.flatMap((level) => {
    const y = chart.y(level.value);
    lowest = Math.max(y, lowest + WORD_HEIGHT);
    return [
      svg("path", { class: "level", d: `M${left},${y}H${right}` }),
      label(right + 7, lowest + 4, level.word, { class: "label" }),
    ];
  });
}

// The series, cut off at the plot's edges.
function area(chart) {
  const { left, right, top, bottom } = chart;
  const size = { x: left, y: top - 4, width: right - left, height: bottom - top + 6 };
  const box = `${size.x} ${size.y} ${size.width} ${size.height}`;
  const inside = svg("svg", { ...size, viewBox: box, overflow: "hidden" });
  for (const line of chart.part.lines) {
    inside.append(svg("path", { class: "line", d: pathOf(chart, line.values), ...stroke(line) }));
  }
  return inside;
}

function pathOf(chart, values) {
  let path = "";
  let since = null; // where the piece began that is being drawn
  for (let place = chart.first; place < chart.last; place += 1) {
    const value = values[place];
    const follows =
      since !== null && value !== null && chart.times[place] - chart.times[place - 1] <= chart.gap;
    if (since === place - 1 && !follows) path += "m-1.2,0h2.4"; // alone: seen as a dot
    if (value === null) {
      since = null;
      continue;
    }
    if (!follows) since = place;
    path += `${follows ? "L" : "M"}${chart.x(chart.times[place]).toFixed(1)},`;
    path += chart.y(value).toFixed(1);
  }
  return since !== null && since === chart.last - 1 ? path + "m-1.2,0h2.4" : path;
}

// A marker where each series was last seen.
function ends(chart) {
  return chart.part.lines.filter(hasMarker).flatMap((line) => {
    let place = Math.min(chart.last, chart.times.length) - 1;
    while (place >= chart.first && line.values[place] === null) place -= 1;
    if (place < chart.first || chart.last === 0) return [];
    const x = Math.min(chart.x(chart.times[place]), chart.right);
    return x < chart.left ? [] : [marker(line, x, chart.y(line.values[place]))];
  });
}

function selection(chart, drag) {
  const [from, to] = [chart.x(drag.from), chart.x(drag.to)].sort((one, other) => one - other);
  const size = { x: from, y: chart.top, width: to - from, height: chart.bottom - chart.top };
  return svg("rect", { class: "selection", ...size });
}

// ---------------------------------------------------------------- reading it

// The sample at a time; null where there is none near it.
function placeAt(chart, time) {
  if (time === null || chart.times.length === 0) return null;
  const place = nearest(chart.times, time);
  const near = Math.abs(chart.x(chart.times[place]) - chart.x(time)) < 12;
  const between = !chart.part.along && Math.abs(chart.times[place] - time) <= chart.gap / 4;
  return near || between ? place : null;
}

function crosshair(chart, place) {
  if (place === null) return [];
  const time = chart.times[place];
  const x = chart.x(time);
  if (x < chart.left - 1 || x > chart.right + 1) return [];
  const found = [svg("path", { class: "cross", d: `M${x},${chart.top}V${chart.bottom}` })];
  for (const line of chart.part.lines) {
    const value = line.values[place];
    if (value === null) continue;
    const spot = { class: "spot", cx: x, cy: chart.y(value), r: 3, fill: ink(line.colour) };
    found.push(svg("circle", spot));
  }
  const besideUnit = chart.left + chart.unitRoom + TIME_WIDTH / 2;
  const middle = Math.min(Math.max(x, besideUnit), chart.right - TIME_WIDTH / 2);
  const words = chart.part.along ? number(time, 0) : clock(time);
  found.push(label(middle, chart.top - 7, words, { class: "label middle cross-time" }));
  return found;
}

// Its values are those that are pointed at, else the last ones.
function legendOf() {
  const list = html("ul", { class: "legend" });
  const widths = new Map();
  let known = "";
  let shown = [];
  return {
    list,
    match(part) {
      const looks = JSON.stringify(part.lines.map(({ values, ...look }) => look));
      if (looks === known) return;
      known = looks;
      shown = part.lines.map(() => html("span", { class: "value" }));
      const font = `12px ${getComputedStyle(list).fontFamily}`;
      const longest = Math.max(0, ...part.lines.map((line) => textWidth(line.name, font)));
      list.style.setProperty("--column", `${Math.min(longest, 200) + BESIDE_NAME}px`);
      list.replaceChildren(...part.lines.map((line, place) => {
        const name = html("span", { class: "name", title: line.name }, line.name);
        return html("li", {}, swatch(line), name, shown[place]);
      }));
    },
    show(chart, place) {
      const { part, last, times } = chart;
      const row = place ?? Math.min(last, times.length) - 1;
      part.lines.forEach((line, which) => {
        const text = quantity(line.values[row], part.unit, chart.decimals);
        setText(shown[which], text);
        keepWidth(shown[which], text, widths, which);
      });
    },
  };
}
