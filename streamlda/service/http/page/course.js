// The course of topics: moments (bins of event time, or snapshots) and the chart of their shares.

const COLOURS = 9; // topics with a colour of their own; the others are one band
const TICK_WIDTH = 110;

/** The bins of event time of a snapshot, or null. */
function byEventTime(snapshot) {
  const timeline = snapshot.timeline;
  if (!timeline || !timeline.starts.length) return null;
  const { unit, starts } = timeline;
  const widest = starts.length > 1 ? starts.at(-1) - starts.at(-2) : DAY;
  const end = (i) => unit === "custom" ? starts[i + 1] ?? starts[i] + widest : later(starts[i], unit);
  const say = {
    hour: asTime, day: asDay, month: asMonth, year: asYear,
    week: (t) => `week from ${asDay(t)}`, custom: (t) => `from ${asTime(t)}`,
  }[unit];
  return {
    ticks: timeTicks,
    unit: `${unit === "custom" ? "bins" : `${unit}s`} of event time, in UTC`,
    moments: starts.map((start, i) => ({
      from: start, to: end(i), label: say(start), brief: say(start), documents: timeline.documents[i],
      shares: new Map(snapshot.topics.map((topic, k) => [topic.id, timeline.shares[i][k]])),
    })),
  };
}

const ascends = (values) => values.every((v, i) => Number.isFinite(v) && (i === 0 || v > values[i - 1]));

/** The snapshots of a list by what `shares(snapshot)` says of their topics; null if that is nothing. */
function bySnapshot(list, sharesOf) {
  const shares = list.map(sharesOf);
  if (!shares.some((values) => values?.some(known))) return null;
  const ends = list.map((each) => (each.interval?.end ? seconds(each.interval.end) : NaN));
  const made = list.map((each) => seconds(each.created));
  const span = (each) => `${asTime(seconds(each.interval.start))} to ${asTime(seconds(each.interval.end))}`;
  let axis;
  if (list.every((each) => each.slots)) {
    axis = {
      ends: list.map((each) => each.slots[1] + 1), first: list[0].slots[0], unit: "record slots",
      ticks: (from, to, most) => numberTicks(from, to, most, (n) => short.format(n)),
      say: (each) => `record slots ${number(each.slots[0])} to ${number(each.slots[1])}`,
      brief: (each) => `slot ${short.format(each.slots[1] + 1)}`,
    };
  } else if (ascends(ends)) {
    const first = seconds(list[0].interval.start);
    const brief = (each) => asDay(seconds(each.interval.end));
    axis = { ends, first: Math.min(first, ends[0] - 1), unit: "event time, in UTC", ticks: timeTicks, say: span, brief };
  } else if (ascends(made) && list.length > 1) {
    const first = made[0] - (made[1] - made[0]);
    const say = (each) => asTime(seconds(each.created));
    axis = { ends: made, first, unit: "when snapshots were made, in UTC", ticks: timeTicks, say, brief: say };
  } else {
    axis = {
      ends: list.map((_, i) => i + 1), first: 0, unit: "snapshots",
      ticks: (from, to, most) => numberTicks(from, to, most, (n) => list[n] ? `${list[n].number}` : ""),
      say: (each) => asTime(seconds(each.created)), brief: (each) => `snapshot ${each.number}`,
    };
  }
  return {
    ticks: axis.ticks,
    unit: axis.unit,
    moments: list.map((each, i) => ({
      from: i ? axis.ends[i - 1] : axis.first, to: axis.ends[i],
      label: `Snapshot ${each.number}, ${axis.say(each)}`, brief: axis.brief(each),
      documents: each.interval?.documents ?? null,
      shares: new Map(each.topics.map((topic, k) => [topic.id, shares[i]?.[k] ?? null])),
    })),
  };
}

/** What can be shown: name to course, the best first. */
function courses(latest, list) {
  const found = {
    time: byEventTime(latest),
    interval: bySnapshot(list, (each) => each.interval?.prevalence ?? null),
    all: bySnapshot(list, (each) => each.topics.map((topic) => topic.prevalence)),
  };
  return Object.fromEntries(Object.entries(found).filter(([, course]) => course));
}

/** A chart of shares over moments, one upon the other; a slider and the pointer choose a moment. */
class Chart {
  constructor(root, onMoment) {
    this.root = root;
    this.onMoment = onMoment;
    this.plot = make("div", { class: "plot" });
    this.side = make("div", { class: "side", "aria-hidden": "true" });
    this.axis = make("div", { class: "axis", "aria-hidden": "true" });
    this.slider = make("input", { type: "range", min: 0, step: 1, "aria-label": "Moment" });
    root.replaceChildren(this.side, this.plot, this.axis, this.slider);
    this.slider.addEventListener("input", () => this.choose(Number(this.slider.value)));
    for (const kind of ["pointermove", "pointerdown"]) {
      this.plot.addEventListener(kind, (event) => this.point(event));
    }
    new ResizeObserver(() => this.course && this.label()).observe(this.plot);
  }

  /** Show `series` of {id, slot, values}, one value or null for each moment, up to `most`. */
  set(course, series, most, name) {
    const last = course.moments.length - 1;
    const follows = !this.course || Number(this.slider.value) === Number(this.slider.max);
    Object.assign(this, { course, series, most });
    this.from = course.moments[0].from;
    this.to = course.moments[last].to;
    const lines = [0.25, 0.5, 0.75, 1].map((y) =>
      draw("line", { class: "grid", x1: 0, x2: 1000, y1: 100 - 100 * y, y2: 100 - 100 * y }));
    this.cursor = draw("rect", { class: "cursor", y: 0, height: 100 });
    const below = course.moments.map(() => 0);
    // The first one on top, as it is in a legend.
    const bands = series.toReversed().map((each) => this.band(each, below));
    this.plot.replaceChildren(draw("svg", {
      viewBox: "0 0 1000 100", preserveAspectRatio: "none", role: "img", "aria-label": name,
    }, ...bands, ...lines, this.cursor));
    this.side.replaceChildren(...[0, 0.5, 1].map((y) => {
      const text = make("span", {}, `${Number((100 * y * most).toPrecision(2))} %`);
      text.style.setProperty("--y", y);
      return text;
    }));
    this.slider.max = last;
    this.label();
    this.choose(follows ? last : Math.min(Number(this.slider.value), last));
  }

  x(value) {
    return (1000 * (value - this.from)) / (this.to - this.from);
  }

  /** The outline of one series on those `below`, apart where something is not known. */
  band({ id, slot, values }, below) {
    let path = "", upper = [], lower = [];
    const close = () => {
      if (upper.length) path += `M${upper.join("L")}L${lower.reverse().join("L")}Z`;
      upper = [];
      lower = [];
    };
    this.course.moments.forEach(({ from, to }, i) => {
      if (i && this.course.moments[i - 1].to !== from) close();
      if (!known(values[i])) {
        close();
        return;
      }
      const y = (share) => (100 - (100 * share) / this.most).toFixed(2);
      const [left, right] = [this.x(from).toFixed(2), this.x(to).toFixed(2)];
      const [low, high] = [y(below[i]), y(below[i] + values[i])];
      upper.push(`${left},${high}`, `${right},${high}`);
      lower.push(`${left},${low}`, `${right},${low}`);
      below[i] += values[i];
    });
    close();
    return draw("path", { class: `band c${slot}`, "data-topic": id ?? "", d: path || "M0,0" });
  }

  label() {
    const most = Math.max(2, Math.floor(this.plot.clientWidth / TICK_WIDTH));
    const ticks = this.course.ticks(this.from, this.to, most);
    this.axis.replaceChildren(...ticks.map(([value, text]) => {
      const tick = make("span", {}, text);
      const x = this.x(value) / 1000;
      tick.style.setProperty("--x", x);
      tick.toggleAttribute("data-last", (1 - x) * this.plot.clientWidth < TICK_WIDTH / 1.4);
      return tick;
    }));
  }

  point(event) {
    const box = this.plot.getBoundingClientRect();
    const value = this.from + ((event.clientX - box.left) / box.width) * (this.to - this.from);
    const found = this.course.moments.findIndex((moment) => value < moment.to);
    this.choose(found < 0 ? this.course.moments.length - 1 : found);
  }

  choose(i) {
    const moment = this.course.moments[i];
    const left = this.x(moment.from);
    this.slider.value = i;
    this.slider.setAttribute("aria-valuetext", moment.label);
    this.cursor.setAttribute("x", left);
    this.cursor.setAttribute("width", Math.max(1, this.x(moment.to) - left));
    this.onMoment(i, moment);
  }

  light(id) {
    this.plot.classList.toggle("lit", id !== null);
    for (const band of this.plot.querySelectorAll(".band")) {
      band.classList.toggle("on", id !== null && band.dataset.topic === String(id));
    }
  }
}

const momentTitle = (moment) => moment.label
  + (known(moment.documents) ? `: ${count(moment.documents, "document")}` : "");

/** Topics that get a band of their own: the largest of all moments, in the colours they had. */
function coloured(course, ids, slots) {
  const weight = (each, id) => (each.shares.get(id) ?? 0) * (each.documents ?? 1);
  const total = (id) => course.moments.reduce((sum, each) => sum + weight(each, id), 0);
  const largest = ids.filter((id) => id !== null)
    .sort((a, b) => total(b) - total(a) || a - b).slice(0, COLOURS);
  for (const id of [...slots.keys()]) if (!largest.includes(id)) slots.delete(id);
  for (const id of largest) {
    const used = new Set(slots.values());
    if (!slots.has(id)) slots.set(id, [...Array(COLOURS).keys()].find((slot) => !used.has(slot)));
  }
  return largest;
}

/** The values of a topic over a course; null where they are not known. */
const valuesOf = (course, id) => course.moments.map((moment) => moment.shares.get(id) ?? null);

/** What all other topics have together. */
function othersOf(course, ids) {
  return course.moments.map(({ shares }) => {
    const rest = [...shares].filter(([id]) => !ids.includes(id)).map(([, share]) => share);
    return rest.length && rest.every(known) ? rest.reduce((sum, share) => sum + share, 0) : null;
  });
}
