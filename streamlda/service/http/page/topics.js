// Topics: their cards, what moved, the chart of all of them, and the view of one.

const TABLE_COLUMNS = 12;
const FAR = 0.2; // a movement that is worth a colour
const MOVED = 3; // how many are named of each kind
const SHOWN_WORDS = 10;

const rank = (value, unknown = -1) => (known(value) ? value : unknown);
const ORDERS = {
  prevalence: (a, b) => rank(b.prevalence) - rank(a.prevalence),
  recent: (a, b) => rank(b.recent) - rank(a.recent),
  moved: (a, b) => rank(b.moved, 2) - rank(a.moved, 2),
  id: (a, b) => rank(a.id, 0) - rank(b.id, 0),
};
const view = { latest: null, list: [], courses: {}, course: null, slots: new Map(), open: null };
const names = () => ({
  time: "by event time",
  interval: "of each snapshot, since the one before",
  all: view.latest.slots ? "by record slots" : "of each snapshot, so far",
});
const inLatest = (id) => view.latest.topics.find((topic) => topic.id === id && id !== null);

function moved(topic) {
  if (topic.moved === null) {
    const isNew = view.list.length > 1;
    return isNew ? [make("span", { class: "moved", "data-kind": "new" }, "new")] : [];
  }
  const kind = topic.moved > FAR ? "far" : "near";
  return [make("span", { class: "moved", "data-kind": kind }, `moved ${topic.moved.toFixed(2)}`)];
}

function doubt(topic) {
  const why = Object.values(topic.marks).join("; ");
  return why ? [make("span", { class: "moved", "data-kind": "far", title: why }, "doubtful")] : [];
}

function wordList(topic, n) {
  const most = Math.max(...topic.words.slice(0, n).map(([, p]) => p)) || 1;
  const list = make("ol", { class: "words", "aria-label": "Words" });
  for (const [word, probability] of topic.words.slice(0, n)) {
    const bar = make("span", { class: "size", "aria-hidden": "true" });
    bar.style.setProperty("--share", probability / most);
    list.append(make("li", {},
      make("span", { class: "word", dir: "auto", title: word }, word), bar,
      make("span", { class: "value" }, percent(probability))));
  }
  return list;
}

/** A line through the known values of a topic, with the first and the last moment below it. */
function trend(topic) {
  const course = view.courses.interval ?? view.courses.all;
  const points = (course?.moments ?? []).filter((each) => known(each.shares.get(topic.id)));
  if (points.length < 2 || topic.id === null) return [];
  const shares = points.map((each) => each.shares.get(topic.id));
  const [first, last] = [shares[0], shares.at(-1)];
  const of = course === view.courses.interval ? "Share" : "Prevalence";
  const label = `${of} of ${title(topic)} over ${shares.length} snapshots: from ${percent(first)} to ${percent(last)}`;
  return [make("figure", { class: "trend chart" }, line(shares, label, 40),
    make("figcaption", { class: "quiet", "aria-hidden": "true" },
      make("span", {}, `${percent(first)}, ${points[0].brief}`),
      make("span", {}, `${percent(last)}, ${points.at(-1).brief}`)))];
}

/** A line from the first value to the last, above zero; `label` says the same in words. */
function line(values, label, height) {
  const width = 240;
  const most = Math.max(...values, 1e-12) * 1.08;
  const x = (i) => (values.length < 2 ? width / 2 : (i * width) / (values.length - 1));
  const y = (value) => height - 1 - ((height - 4) * value) / most;
  const points = values.map((value, i) => `${x(i).toFixed(1)},${y(value).toFixed(1)}`);
  if (points.length === 1) points.unshift(`0,${y(values[0]).toFixed(1)}`);
  const first = points[0].split(",")[0];
  const last = points.at(-1).split(",")[0];
  return draw("svg", {
    viewBox: `0 0 ${width} ${height}`, height, preserveAspectRatio: "none",
    role: "img", "aria-label": label,
  },
  draw("line", { class: "floor", x1: 0, x2: width, y1: height - 0.5, y2: height - 0.5 }),
  draw("polygon", {
    class: "under", points: `${first},${height} ${points.join(" ")} ${last},${height}`,
  }),
  draw("polyline", { class: "line", points: points.join(" ") }));
}

function card(topic) {
  const name = `topic-${topic.id ?? "x"}`;
  const open = make("button", { type: "button", class: "plain" }, title(topic));
  open.addEventListener("click", () => openTopic(topic.id));
  const recent = known(topic.recent)
    ? [make("span", { class: "recent quiet" }, `recent ${percent(topic.recent)}`)] : [];
  return make("article", { class: "card", "aria-labelledby": name },
    make("div", { class: "card-head" },
      make("h3", { id: name }, topic.id === null ? title(topic) : open),
      make("span", { class: "share" }, percent(topic.prevalence)),
      ...recent, ...moved(topic), ...doubt(topic)),
    wordList(topic, SHOWN_WORDS), ...trend(topic));
}

function showCards() {
  const topics = [...view.latest.topics].sort(ORDERS[at("order").value]);
  at("cards").replaceChildren(...topics.map(card));
}

function showMoves() {
  const { latest, list } = view;
  const before = list.at(-2);
  at("moves").hidden = !before;
  if (!before) return "";
  const now = new Set(latest.topics.map((topic) => topic.id));
  const fresh = latest.topics.filter((topic) => topic.moved === null);
  const gone = before.topics.filter((topic) => !now.has(topic.id));
  const stayed = latest.topics.filter((topic) => topic.moved !== null)
    .sort((a, b) => b.moved - a.moved);
  const mean = stayed.reduce((sum, topic) => sum + topic.moved, 0) / (stayed.length || 1);
  const text = `Since snapshot ${before.number}, ${count(stayed.length, "topic")} stayed `
    + `and moved by ${mean.toFixed(2)} on average (0: the same words, 1: none in common), `
    + `${fresh.length} came and ${gone.length} went.`;
  at("moves-text").textContent = text;
  const item = (topic, words) => make("li", {}, `${title(topic)}: ${words}`);
  const earlier = new Map(before.topics.map((t, k) => [t.id, before.interval?.prevalence?.[k] ?? null]));
  const changes = stayed.filter((topic) => known(topic.recent) && known(earlier.get(topic.id)))
    .map((topic) => [topic, topic.recent - earlier.get(topic.id)]).sort((a, b) => b[1] - a[1]);
  const went = (way, part) => part.map(([topic]) =>
    item(topic, `${way} from ${percent(earlier.get(topic.id))} to ${percent(topic.recent)}`));
  at("moves-list").replaceChildren(
    ...went("rose", changes.filter(([, by]) => by > 0).slice(0, MOVED)),
    ...went("fell", changes.filter(([, by]) => by < 0).slice(-MOVED).reverse()),
    ...stayed.slice(0, MOVED).map((topic) => item(topic, `moved ${topic.moved.toFixed(2)}`)),
    ...fresh.slice(0, 5).map((topic) => item(topic, "new")),
    ...gone.slice(0, 5).map((topic) => item(topic, "gone")));
  return text;
}

function showTable(course) {
  const columns = course.moments.slice(-TABLE_COLUMNS);
  const head = make("tr", {}, make("th", { scope: "col" }, "Topic"),
    ...columns.map((moment) => make("th", { scope: "col" }, moment.label)));
  const topics = [...view.latest.topics].sort(ORDERS.id);
  const rows = topics.map((topic) => make("tr", {},
    make("th", { scope: "row" }, title(topic)),
    ...columns.map((moment) => make("td", {}, percent(moment.shares.get(topic.id) ?? null)))));
  at("table").querySelector("caption").textContent = `Shares ${names()[at("course").value]}`
    + (columns.length < course.moments.length ? `: the last ${columns.length} of ${course.moments.length}.` : ".");
  at("table").querySelector("thead").replaceChildren(head);
  at("table").querySelector("tbody").replaceChildren(...rows);
}

// The chart of all topics.

const all = new Chart(at("all-chart"), showMoment);

function showCourse() {
  const found = view.courses;
  const select = at("course");
  const kinds = Object.keys(found);
  at("course-panel").hidden = !kinds.length;
  if (!kinds.length) return;
  const wanted = kinds.includes(select.value) ? select.value
    : found.time?.moments.length > 1 ? "time" : kinds.find((kind) => kind !== "time") ?? "time";
  if ([...select.options].map((option) => option.value).join() !== kinds.join()) {
    select.replaceChildren(...kinds.map((kind) => make("option", { value: kind }, names()[kind])));
  }
  select.value = wanted;
  const course = view.course = found[wanted];
  const ids = [...new Set(course.moments.flatMap((moment) => [...moment.shares.keys()]))];
  const largest = coloured(course, ids, view.slots);
  const series = [
    ...largest.map((id) => ({ id, slot: view.slots.get(id), values: valuesOf(course, id) })),
    ...(ids.length > largest.length ? [{ id: null, slot: "x", values: othersOf(course, largest) }] : []),
  ];
  view.series = series;
  const { moments } = course;
  all.set(course, series, 1, `Shares of ${count(ids.length, "topic")} over ${count(moments.length, "moment")}, `
    + `${moments[0].label} to ${moments.at(-1).label}; the slider below reads it out`);
  const { timeline } = view.latest;
  at("course-note").textContent = `Share of tokens; ${course.unit}.`
    + (wanted === "time" && timeline.undated + timeline.ahead + timeline.late
      ? ` In no bin: ${count(timeline.undated, "document")} without a time, ${number(timeline.ahead)} from the future, ${number(timeline.late)} far from the bins kept.` : "");
  showTable(course);
}

function showMoment(i, moment) {
  at("moment").textContent = momentTitle(moment);
  const rows = view.series.map(({ id, slot, values }) => {
    const topic = inLatest(id);
    const words = (topic?.words ?? []).slice(0, 3).map(([word]) => isolated(word)).join(", ");
    const name = id === null ? "other topics" : title(topic ?? { id }) + (topic ? "" : ", gone");
    const parts = [
      make("span", { class: `swatch c${slot}`, "aria-hidden": "true" }),
      make("span", { class: "name" }, make("span", { class: "topic" }, name), " ",
        make("span", { class: "quiet" }, words)),
      make("span", { class: "value" }, percent(values[i])),
    ];
    if (!topic) return make("li", {}, ...parts);
    const open = make("button", { type: "button", class: "plain" }, ...parts);
    open.addEventListener("click", () => openTopic(id));
    for (const [kind, lit] of [["pointerenter", id], ["pointerleave", null], ["focus", id], ["blur", null]]) {
      open.addEventListener(kind, () => all.light(lit));
    }
    return make("li", {}, open);
  });
  at("legend").replaceChildren(...rows);
}

// The view of one topic.

const one = new Chart(at("one-chart"), (i, moment) => {
  at("one-moment").textContent = `${momentTitle(moment)}: ${percent(moment.shares.get(view.open) ?? null)}`;
});

function openTopic(id) {
  view.open = id;
  showTopic();
  if (!at("topic").open) at("topic").showModal();
  showCame(id);
}

/** Which words came among the most probable ones of a topic, and which went, since it began. */
async function showCame(id) {
  at("came").textContent = "";
  const first = view.list.find((each) => each.topics.some((topic) => topic.id === id));
  if (!first || first.number === view.latest.number) return;
  const before = await ask(`/snapshots/${first.number}?words=${SHOWN_WORDS}`).catch(() => null);
  const then = before?.content.topics.find((topic) => topic.id === id)?.words.map(([word]) => isolated(word));
  if (view.open !== id || !then) return;
  const now = inLatest(id).words.slice(0, SHOWN_WORDS).map(([word]) => isolated(word));
  const came = now.filter((word) => !then.includes(word)).join(", ") || "none";
  const went = then.filter((word) => !now.includes(word)).join(", ") || "none";
  at("came").textContent = `Among the first ${SHOWN_WORDS} since snapshot ${first.number}: came ${came}; went ${went}.`;
}

/** Representative documents: their ids, and their texts where the model holds these. */
function showDocuments(documents) {
  at("topic-documents").hidden = !documents.length;
  at("topic-documents").querySelector("ul").replaceChildren(...documents.map(({ id, text, proportion }) =>
    make("li", {}, make("span", { dir: "auto" }, id), " ", make("span", { class: "quiet" }, percent(proportion)),
      ...(known(text) ? [make("p", { class: "quiet", dir: "auto" }, text)] : []))));
}

function showTopic() {
  const topic = inLatest(view.open);
  if (!topic) {
    at("topic").close();
    return;
  }
  at("topic-title").textContent = title(topic);
  const near = topic.nearest;
  const toNear = near && make("button", { type: "button", class: "link" }, title(inLatest(near.id) ?? near));
  toNear?.addEventListener("click", () => openTopic(near.id));
  const measured = (key) => view.latest.topics.some((each) => known(each[key]));
  const facts = [
    [view.latest.slots ? "Share" : "Share so far", percent(topic.prevalence)],
    ...(measured("recent") ? [["Recent: since the snapshot before", percent(topic.recent)]] : []),
    ["Moved", topic.moved === null ? (view.list.length < 2 ? "–" : "new") : topic.moved.toFixed(2)],
    ...(measured("npmi") ? [["Coherence (NPMI)", known(topic.npmi) ? topic.npmi.toFixed(2) : "–"]] : []),
    ["Exclusivity", topic.exclusivity.toFixed(2)],
    ["Nearest", ...(near ? [toNear, ` at ${near.distance.toFixed(2)}`] : ["–"])],
    ["Doubts", Object.values(topic.marks).join("; ") || "none"],
  ];
  at("topic-facts").replaceChildren(...facts.map(([name, ...values]) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, ...values))));
  at("topic-words").replaceChildren(wordList(topic, topic.words.length));
  showDocuments(topic.documents ?? []);
  at("one-chart").hidden = !view.course;
  if (!view.course) return;
  const values = valuesOf(view.course, topic.id);
  const shown = values.filter(known);
  const slot = view.slots.get(topic.id) ?? "x";
  one.set(view.course, [{ id: topic.id, slot, values }], Math.max(...shown, 0.001) * 1.1,
    `Share of ${title(topic)} ${names()[at("course").value]}`);
}

function showSnapshot(latest, list) {
  Object.assign(view, { latest, list });
  latest.topics.forEach((topic, k) => { topic.recent = latest.interval?.prevalence?.[k] ?? null; });
  view.courses = courses(latest, list);
  const { interval } = latest;
  const since = interval?.start
    ? `; the last ${number(interval.documents)} are from ${asTime(seconds(interval.start))} to ${asTime(seconds(interval.end))}` : "";
  at("about").textContent = `Snapshot ${latest.number}, ${asTime(seconds(latest.created))} UTC: `
    + `${count(latest.topics.length, "topic")} from `
    + `${count(latest.documents, latest.private ? "record slot" : "document")}${since}. `
    + `Beside each, its share of the tokens ${latest.slots ? "of its window" : "so far"}.`;
  showCards();
  showCourse();
  if (at("topic").open) showTopic();
  const text = showMoves();
  at("statement").hidden = false;
  at("statement").querySelector("pre").textContent = latest.privacy_lines.join("\n");
  at("news").textContent = `Snapshot ${latest.number} is shown. ${text}`;
}

at("order").addEventListener("change", () => view.latest && showCards());
at("course").addEventListener("change", showCourse);
at("close").addEventListener("click", () => at("topic").close());
at("topic").addEventListener("click", (event) => event.target === at("topic") && at("topic").close());
