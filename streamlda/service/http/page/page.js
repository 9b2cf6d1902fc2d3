// The page of a streamlda daemon. It asks /status and /snapshots every two seconds, and for the
// words of the newest snapshot when there is a new one. Nothing is stored, nothing comes from
// elsewhere, and text from the daemon is only ever set as text.

const PERIOD = 2000;
const KEPT_RATES = 90;
const TABLE_COLUMNS = 12;
const FAR = 0.2; // a movement that is worth a colour

const ORDERS = {
  prevalence: (a, b) => b.prevalence - a.prevalence,
  moved: (a, b) => (b.moved ?? 2) - (a.moved ?? 2),
  id: (a, b) => (a.id ?? 0) - (b.id ?? 0),
};

const state = { token: null, tag: null, list: [], latest: null, rates: [], busy: false };
const at = (id) => document.getElementById(id);
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function draw(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const percent = (share) => share === null ? "–" : `${(100 * share).toFixed(share < 0.0995 ? 2 : 1)} %`;
const count = (n, one, many) => `${n < 1e6 ? whole.format(n) : short.format(n)} ${n === 1 ? one : many}`;
const title = (topic) => (topic.id === null ? "Topic" : `Topic ${topic.id}`);

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

/** A line from the first value to the last, above zero; `label` says the same in words. */
function chart(values, label, height) {
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

function figure(id, text) {
  at(id).textContent = text;
}

function meter(id, value, most, text) {
  const element = at(id);
  const share = most > 0 ? Math.min(1, value / most) : 0;
  for (const [name, set] of [["min", 0], ["max", most], ["now", value], ["text", text]]) {
    element.setAttribute(`aria-value${name}`, set);
  }
  element.toggleAttribute("data-full", share > 0.9);
  element.firstElementChild.style.setProperty("--share", share);
  element.hidden = false;
}

function badge(id, text) {
  at(id).textContent = text;
  at(id).hidden = !text;
}

function showStatus(status) {
  at("now").hidden = false;
  at("stream").textContent = status.stream;
  badge("phase", status.ready ? status.phase : `${status.phase}: not ready`);
  badge("privacy", status.private ? "private snapshots" : "not private");

  const rate = status.documents_per_second;
  state.rates.push(rate);
  if (state.rates.length > KEPT_RATES) state.rates.shift();
  figure("rate", rate < 10 ? rate.toFixed(1) : whole.format(rate));
  const spoken = `From ${whole.format(state.rates[0])} to ${whole.format(rate)} documents a second `
    + `over the last ${duration((state.rates.length * PERIOD) / 1000)}`;
  at("rate-chart").replaceChildren(chart(state.rates, spoken, 44));

  const { records, partitions } = status.lag;
  const parts = Object.values(partitions);
  const blind = parts.filter((lag) => lag === null).length;
  figure("lag", records === null ? "–" : short.format(records));
  at("lag-note").textContent = parts.length
    ? `records in ${count(parts.length, "partition", "partitions")}`
      + (blind ? `, ${blind} not known` : "")
    : "";

  figure("left", status.places_left === null ? "–" : short.format(status.places_left));
  at("left-note").textContent = status.places === null ? ""
    : `${status.places_left === null ? "" : "record slots to go, "}${short.format(status.places)} read`;

  const { resident_bytes: resident, limit_bytes: limit } = status.memory;
  figure("memory", resident === null ? "–" : size(resident));
  at("memory-note").textContent = limit === null ? "no limit set" : `of ${size(limit)}`;
  if (resident !== null && limit) {
    meter("memory-meter", resident, limit, `${size(resident)} of ${size(limit)}`);
  }

  const saved = status.checkpoint;
  figure("saved", saved ? `${duration(saved.age_seconds)} ago` : "none yet");
  at("saved-note").textContent = saved
    ? `${size(saved.size_bytes)} in ${saved.seconds.toFixed(2)} s` : "";

  at("budget").hidden = !status.budget;
  if (status.budget) {
    const { epsilon_spent: spent, epsilon_total: total, delta } = status.budget;
    figure("budget-left", `ε ${spent.toFixed(2)}`);
    meter("budget-meter", spent, total, `epsilon ${spent.toFixed(2)} of ${total.toFixed(2)} spent`);
    at("budget-note").textContent = `spent of ${total.toFixed(2)}, at δ ${delta.toExponential(0)}`;
  }
}

/** The prevalence of one topic in the listed snapshots that have it, oldest first. */
function history(id) {
  const found = [];
  for (const snapshot of state.list) {
    const topic = snapshot.topics.find((other) => other.id === id);
    if (topic && id !== null) found.push(topic.prevalence);
  }
  return found;
}

function movedBadge(topic, isFirst) {
  if (topic.moved === null) {
    return isFirst ? [] : [make("span", { class: "moved", "data-kind": "new" }, "new")];
  }
  const kind = topic.moved > FAR ? "far" : "near";
  return [make("span", { class: "moved", "data-kind": kind }, `moved ${topic.moved.toFixed(2)}`)];
}

function card(topic, isFirst) {
  const most = topic.words[0]?.[1] || 1;
  const words = make("ol", { class: "words", "aria-label": "Most probable words" });
  for (const [word, probability] of topic.words) {
    const bar = make("span", { class: "size", "aria-hidden": "true" });
    bar.style.setProperty("--share", probability / most);
    words.append(make("li", {},
      make("span", { class: "word", dir: "auto", title: word }, word), bar,
      make("span", { class: "value" }, percent(probability))));
  }
  const name = `topic-${topic.id ?? "x"}`;
  const article = make("article", { class: "card", "aria-labelledby": name },
    make("div", { class: "card-head" },
      make("h3", { id: name }, title(topic)),
      make("span", { class: "share" }, percent(topic.prevalence)),
      ...movedBadge(topic, isFirst)),
    words);
  const shares = history(topic.id);
  if (shares.length > 1) {
    const label = `Prevalence of ${title(topic)} over ${shares.length} snapshots: from `
      + `${percent(shares[0])} to ${percent(shares.at(-1))}`;
    article.append(make("figure", { class: "trend chart" }, chart(shares, label, 40),
      make("figcaption", { class: "quiet", "aria-hidden": "true" },
        make("span", {}, `${percent(shares[0])}, ${shares.length - 1} ago`),
        make("span", {}, `${percent(shares.at(-1))} now`))));
  }
  return article;
}

function showCards() {
  const shown = state.latest;
  const topics = [...shown.topics].sort(ORDERS[at("order").value]);
  at("cards").replaceChildren(...topics.map((topic) => card(topic, state.list.length < 2)));
}

function showMoves() {
  const shown = state.latest;
  const before = state.list.at(-2);
  at("moves").hidden = !before;
  if (!before) return "";
  const now = new Set(shown.topics.map((topic) => topic.id));
  const fresh = shown.topics.filter((topic) => topic.moved === null);
  const gone = before.topics.filter((topic) => !now.has(topic.id));
  const stayed = shown.topics.filter((topic) => topic.moved !== null)
    .sort((a, b) => b.moved - a.moved);
  const mean = stayed.reduce((sum, topic) => sum + topic.moved, 0) / (stayed.length || 1);
  const text = `Since snapshot ${before.number}, ${count(stayed.length, "topic", "topics")} went on `
    + `and moved by ${mean.toFixed(2)} on average (0: the same words, 1: none in common), `
    + `${fresh.length} came and ${gone.length} went.`;
  at("moves-text").textContent = text;
  const line = (topic, words) => make("li", {}, `${title(topic)}: ${words}`);
  at("moves-list").replaceChildren(
    ...stayed.slice(0, 3).map((topic) => line(topic, `moved ${topic.moved.toFixed(2)}`)),
    ...fresh.slice(0, 5).map((topic) => line(topic, "new")),
    ...gone.slice(0, 5).map((topic) => line(topic, "gone")));
  return text;
}

function showTable() {
  const columns = state.list.slice(-TABLE_COLUMNS);
  const head = make("tr", {}, make("th", { scope: "col" }, "Snapshot"),
    ...columns.map((snapshot) => make("th", { scope: "col" }, String(snapshot.number))));
  const topics = [...state.latest.topics].sort(ORDERS.id);
  const rows = topics.map((topic) => make("tr", {},
    make("th", { scope: "row" }, title(topic)),
    ...columns.map((snapshot) => {
      const found = snapshot.topics.find((other) => other.id === topic.id && topic.id !== null);
      return make("td", {}, found ? percent(found.prevalence) : "–");
    })));
  at("table").hidden = false;
  at("table").querySelector("thead").replaceChildren(head);
  at("table").querySelector("tbody").replaceChildren(...rows);
}

function showSnapshot() {
  const shown = state.latest;
  const when = new Date(shown.created).toLocaleString("en", { dateStyle: "medium", timeStyle: "short" });
  at("about").textContent = `Snapshot ${shown.number}, ${when}: `
    + `${count(shown.topics.length, "topic", "topics")} from `
    + `${count(shown.documents, "document", "documents")}. Below each, its prevalence so far.`;
  showCards();
  const moved = showMoves();
  showTable();
  at("statement").hidden = false;
  at("statement").querySelector("pre").textContent = shown.privacy_lines.join("\n");
  at("news").textContent = `Snapshot ${shown.number} is shown. ${moved}`;
}

class NeedsToken extends Error {}

async function ask(path, tag = null) {
  const headers = {};
  if (state.token) headers.Authorization = `Bearer ${state.token}`;
  if (tag) headers["If-None-Match"] = tag;
  const answer = await fetch(path, {
    headers, cache: "no-store", credentials: "omit", signal: AbortSignal.timeout(10000),
  });
  if (answer.status === 304) return null;
  if (answer.status === 401) throw new NeedsToken();
  if (!answer.ok) {
    const reply = await answer.json().catch(() => null);
    throw new Error(reply?.error ? `${reply.error.rule}; ${reply.error.remedy}` : `status ${answer.status}`);
  }
  return { tag: answer.headers.get("ETag"), content: await answer.json() };
}

function signIn(isNeeded) {
  const opens = isNeeded && at("sign-in").hidden;
  at("sign-in").hidden = !isNeeded;
  at("topics").hidden = isNeeded;
  at("links").hidden = state.token !== null || isNeeded; // a link cannot carry the token
  if (isNeeded) {
    trouble(state.token ? "This is not the token of the daemon." : "");
    state.token = null;
    at("link").textContent = "locked";
    at("link").dataset.state = "wait";
  }
  if (opens) at("token").focus();
}

function trouble(text) {
  if (at("trouble").textContent !== text) at("trouble").textContent = text;
  at("trouble").hidden = !text;
}

async function look() {
  showStatus((await ask("/status")).content);
  const listed = await ask("/snapshots", state.tag);
  if (listed) {
    state.list = listed.content.snapshots;
    if (listed.content.latest === null) {
      const { withheld } = listed.content;
      at("about").textContent = withheld
        ? `${count(withheld, "snapshot is", "snapshots are")} not private, and not shown.`
        : "No snapshot has been published yet.";
    } else {
      state.latest = (await ask(`/snapshots/${listed.content.latest}`)).content;
      showSnapshot();
    }
    state.tag = listed.tag; // only now: a failure in between is tried again
  }
}

async function round() {
  if (state.busy) return;
  state.busy = true;
  try {
    if (document.visibilityState === "visible" && at("sign-in").hidden) {
      await look();
      signIn(false);
      trouble("");
      at("link").textContent = "live";
      at("link").dataset.state = "live";
    }
  } catch (error) {
    if (error instanceof NeedsToken) {
      signIn(true);
    } else {
      const silent = error instanceof TypeError || error.name === "TimeoutError";
      trouble(silent ? "The daemon does not answer. What is shown may be old." : error.message);
      at("link").textContent = "no answer";
      at("link").dataset.state = "lost";
    }
  } finally {
    state.busy = false;
    clearTimeout(state.timer);
    state.timer = setTimeout(round, PERIOD);
  }
}

at("order").addEventListener("change", () => state.latest && showCards());
at("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  state.token = at("token").value.trim();
  at("token").value = "";
  signIn(false);
  at("topics").focus({ preventScroll: true });
  round();
});
document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && round());
round();
