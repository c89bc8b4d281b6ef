// Numbers and times in words. A missing value is a dash, never a zero.

const MISSING = "–";
const MINUS = "\u2212";

const writers = new Map(); // by decimals: to make one costs more than to write a thousand numbers

function writer(decimals) {
  if (!writers.has(decimals)) {
    const digits = { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
    writers.set(decimals, new Intl.NumberFormat("en-US", digits));
  }
  return writers.get(decimals);
}

export function number(value, decimals) {
  if (value === null || value === undefined) return MISSING;
  return writer(decimals).format(value).replace("-", MINUS);
}

// Decimals that show three digits of the largest value; none where all are whole.
export function decimalsOf(values) {
  let largest = 0;
  let whole = true;
  for (const value of values) {
    if (value === null) continue;
    largest = Math.max(largest, Math.abs(value));
    whole = whole && Number.isInteger(value);
  }
  if (whole || largest === 0) return 0;
  return Math.min(Math.max(0, 2 - Math.floor(Math.log10(largest))), 6);
}

export function quantity(value, unit, decimals) {
  if (value === null || value === undefined) return MISSING;
  return unit === "share" ? `${number(value * 100, 1)}%` : number(value, decimals);
}

export function unitWord(unit) {
  return unit === "share" ? "percent" : unit;
}

// Short enough for an axis: 0.25, 1,000, 25k, 1.5M; shares in percent.
export function tick(value, unit, step) {
  if (unit === "share") return `${number(value * 100, step < 0.01 ? 1 : 0)}%`;
  for (const [size, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(value) >= size && (size > 1e3 || Math.abs(value) >= 1e4)) {
      return number(value / size, decimalsOf([value / size, step / size])) + letter;
    }
  }
  return number(value, Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));
}

const two = (part) => String(part).padStart(2, "0");

export function clock(seconds, { short = false } = {}) {
  const moment = new Date(seconds * 1000);
  const minutes = `${two(moment.getHours())}:${two(moment.getMinutes())}`;
  return short ? minutes : `${minutes}:${two(moment.getSeconds())}`;
}

const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");

export function day(seconds) {
  const moment = new Date(seconds * 1000);
  return `${moment.getDate()} ${MONTHS[moment.getMonth()]} ${moment.getFullYear()}`;
}
