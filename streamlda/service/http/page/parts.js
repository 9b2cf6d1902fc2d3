// What the parts of the page are made of: elements, numbers and times in words. The files of this
// folder are sent as one module, in the order of the daemon's list.

const at = (id) => document.getElementById(id);
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

function put(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const make = (tag, attributes = {}, ...children) =>
  put(document.createElement(tag), attributes, children);
const draw = (tag, attributes = {}, ...children) =>
  put(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

/** A word whose direction does not reach beyond it, so that a list stays in its order. */
const isolated = (word) => `\u2068${word}\u2069`;
const known = (value) => value !== null && value !== undefined;
const percent = (share) =>
  known(share) ? `${(100 * share).toFixed(share < 0.0995 ? 2 : 1)} %` : "–";
const number = (n) => (n < 1e6 ? whole : short).format(n);
const count = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;
const title = (topic) =>
  (topic.id === null ? "Topic" : `Topic ${topic.id}`) + (topic.name ? `: ${isolated(topic.name)}` : "");

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; bytes >= 1024 && unit < units.length - 1; unit++) bytes /= 1024;
  return `${bytes.toFixed(unit === 0 || bytes >= 100 ? 0 : 1)} ${units[unit]}`;
}

function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

// Times: seconds since 1970, shown in UTC.

const MINUTE = 60, HOUR = 3600, DAY = 86400, MONTH = 30 * DAY, YEAR = 365 * DAY;
const written = (options) => {
  const format = new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", ...options });
  return (seconds) => format.format(1000 * seconds);
};
const asYear = written({ year: "numeric" });
const asMonth = written({ month: "short", year: "numeric" });
const asDay = written({ day: "numeric", month: "short", year: "numeric" });
const asShortDay = written({ day: "numeric", month: "short" });
const asClock = written({ hour: "2-digit", minute: "2-digit" });
const asTime = (seconds) => `${asDay(seconds)}, ${asClock(seconds)}`;
const seconds = (iso) => Date.parse(iso) / 1000;

/** The start of a later unit of the calendar: `n` months after a month, and so on. */
function later(start, unit, n = 1) {
  const date = new Date(1000 * start);
  if (unit === "year") date.setUTCFullYear(date.getUTCFullYear() + n);
  else if (unit === "month") date.setUTCMonth(date.getUTCMonth() + n);
  else return start + n * { hour: HOUR, day: DAY, week: 7 * DAY }[unit];
  return date / 1000;
}

const STEPS = [
  ...[1, 5, 15, 30].map((n) => n * MINUTE), ...[1, 3, 6, 12].map((n) => n * HOUR),
  ...[1, 2, 7, 14].map((n) => n * DAY), ...[1, 3, 6].map((n) => n * MONTH),
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500].map((n) => n * YEAR),
];

/** About `most` ticks of a time axis: where they stand, and what they say. */
function timeTicks(from, to, most) {
  const step = STEPS.find((each) => (to - from) / each <= most) ?? STEPS.at(-1);
  const ticks = [];
  const date = new Date(1000 * from);
  const start = (...parts) => Date.UTC(...parts) / 1000;
  if (step < MONTH) {
    const first = step < DAY ? Math.ceil(from / step) * step : Math.ceil(from / DAY) * DAY;
    for (let t = first; t <= to; t += step) {
      const midnight = t % DAY === 0;
      const day = ticks.length ? asShortDay(t) : asDay(t);
      ticks.push([t, step >= DAY || midnight ? day : ticks.length ? asClock(t) : asTime(t)]);
    }
    return ticks;
  }
  const months = Math.round(step / MONTH);
  const years = Math.round(step / YEAR);
  let year = date.getUTCFullYear();
  if (years) {
    for (year -= year % years; start(year, 0) <= to; year += years) {
      if (start(year, 0) >= from) ticks.push([start(year, 0), String(year)]);
    }
    return ticks;
  }
  for (let month = date.getUTCMonth() - (date.getUTCMonth() % months); ; month += months) {
    const t = start(year, month);
    if (t > to) return ticks;
    if (t >= from) ticks.push([t, asMonth(t)]);
  }
}

/** About `most` ticks of a number axis. */
function numberTicks(from, to, most, name) {
  const rough = Math.max(1, (to - from) / most);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const ticks = [];
  for (let n = Math.ceil(from / step) * step; n <= to; n += step) ticks.push([n, name(n)]);
  return ticks;
}
