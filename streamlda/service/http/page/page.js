// The page itself: it asks /status and /snapshots every two seconds, and for the
// words of the newest snapshot when there is a new one. Nothing is stored, nothing comes from
// elsewhere, and text from the daemon is only ever set as text.

const PERIOD = 2000;
const KEPT_RATES = 90;
const WORDS = 30;
const STALLED = {
  source: "source away",
  "dead-letters": "dead letters cannot be written",
  output: "snapshots cannot be stored",
  checkpoint: "checkpoints cannot be written",
  beginning: "words and projection are being made",
  partitions: "partitions are still with another daemon",
};
const PHASES = { "warm-up": "warming up", exhausted: "no more snapshots", draining: "ending" };

const state = { token: null, tag: null, shown: false, rates: [], viewer: false, busy: false };

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

/** What of the partitions that daemons share is here, in words. */
function shared({ partitions, waiting, elsewhere, generation, lease, places }) {
  return [
    partitions.length ? `here: ${partitions.join(", ")}` : "none here",
    waiting.length ? `to come: ${waiting.join(", ")}` : "",
    elsewhere.length ? `elsewhere: ${elsewhere.join(", ")}` : "",
    known(places) ? `${short.format(places)} saved by all daemons` : "",
    generation === null ? "" : `generation ${generation}`,
    lease ? "makes the snapshots of all daemons" : "",
  ];
}

/** Documents a second since the last answer; 0 after the first. */
function rateOf({ documents, uptime_seconds: now }) {
  const read = Object.values(documents).reduce((sum, n) => sum + n, 0);
  const { read: before, now: then } = state.last ?? { read, now };
  state.last = { read, now };
  return now > then ? Math.max(0, read - before) / (now - then) : 0;
}

function showStatus(status) {
  at("now").hidden = false;
  at("stream").textContent = status.stream;
  const phase = PHASES[status.phase] ?? status.phase;
  badge("phase", status.ready ? phase : `${phase}: not ready`);
  badge("privacy", status.private ? "private snapshots" : "not private");

  const rate = rateOf(status);
  state.rates.push(rate);
  if (state.rates.length > KEPT_RATES) state.rates.shift();
  figure("rate", rate < 10 ? rate.toFixed(1) : whole.format(rate));
  const spoken = `From ${whole.format(state.rates[0])} to ${whole.format(rate)} documents a second `
    + `over the last ${duration((state.rates.length * PERIOD) / 1000)}`;
  at("rate-chart").replaceChildren(line(state.rates, spoken, 44));

  const { records, bytes, partitions, seconds: behind } = status.lag;
  const parts = Object.values(partitions);
  const blind = parts.filter((lag) => lag === null).length;
  figure("lag", known(bytes) ? size(bytes) : records === null ? "–" : short.format(records));
  at("lag-note").textContent = known(bytes) ? "in files"
    : [
      parts.length ? `records in ${count(parts.length, "partition")}` + (blind ? `, ${blind} not known` : "") : "",
      behind > 0 ? `newest learned ${duration(behind)} ago` : "",
      ...(status.group ? shared(status.group) : []),
    ].filter(Boolean).join("; ");

  const { places, places_left: left } = status;
  figure("left", known(left) ? short.format(left) : "–");
  at("left-note").textContent = [
    known(left) ? `${slots(status)} to go${rate > 0 ? `, about ${duration(left / rate)}` : ""}` : "",
    known(places) ? `${short.format(places)} read` : "",
  ].filter(Boolean).join("; ");

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

  showUnused(status);

  at("budget").hidden = !status.budget;
  if (status.budget) {
    const { epsilon_spent: spent, epsilon_left: left, epsilon_total: total, delta } = status.budget;
    const share = `${left.toFixed(2)} of ${total.toFixed(2)}`;
    figure("budget-left", `ε ${left.toFixed(2)}`);
    meter("budget-meter", total - left, total, `epsilon ${share} left`);
    at("budget-note").textContent = `left of ${total.toFixed(2)} for new documents; `
      + `none has spent more than ${spent.toFixed(2)}, at δ ${delta.toExponential(0)}`;
  }
}

/** What a private run counts is its slots: how many of them are read as documents is private. */
function slots(status) {
  return status.private ? "record slots" : "records";
}

/** What was read and not learned from, by reason, and what could not be read. */
function showUnused({ documents, rejects, lost, undated, ahead, late }) {
  const reasons = Object.entries(rejects);
  if (documents.short) reasons.push(["too short", documents.short]);
  reasons.sort((a, b) => b[1] - a[1]);
  figure("unused", number(documents.rejected + documents.short));
  const gone = Object.entries(lost ?? {}).filter(([, n]) => n > 0);
  at("unused-note").textContent = [
    reasons.map(([reason, n]) => `${reason.replaceAll("-", " ")} ${number(n)}`).join(", ") || "none",
    undated ? `used, but without a time: ${number(undated)}` : "",
    ahead ? `used, but from the future by their time: ${number(ahead)}` : "",
    late ? `used, but far from the time bins kept: ${number(late)}` : "",
    gone.length ? `lost: ${gone.map(([unit, n]) => `${number(n)} ${unit}`).join(", ")}` : "",
  ].filter(Boolean).join("; ");
}

/** How far it is to the first topics. A snapshot may come before the warm-up is over, with topics. */
function showProgress(status) {
  at("progress").hidden = !status || state.shown;
  if (at("progress").hidden) return;
  const { warmup, places_left: left, places } = status;
  const isWarmup = warmup && !(known(left) && left < warmup.of - warmup.documents);
  const lines = [];
  if (isWarmup) lines.push(`${number(warmup.documents)} of ${number(warmup.of)} documents to the first topics`);
  if (!known(left)) lines.push(`${slots(status)} to the first snapshot: not known`);
  else if (isWarmup) lines.push(`${number(left)} ${slots(status)} to the first snapshot`);
  else lines.push(`${number(places)} of ${number(places + left)} ${slots(status)} to the first snapshot`);
  at("progress-text").textContent = lines.join("; ");
  at("progress-meter").hidden = true;
  if (isWarmup) meter("progress-meter", warmup.documents, warmup.of, lines[0]);
  else if (known(left)) meter("progress-meter", places, places + left, lines[0]);
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
  if (answer.status === 403 && path === "/status") {
    state.viewer = true; // the figures of a private run are for operators: ask no more
    badge("privacy", "private snapshots");
    return { content: null };
  }
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
  at("links").hidden = state.token !== null || state.viewer || isNeeded; // a link carries no token
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

/** What cannot be reached, read or written: in words, with its time and the reason. */
function outages(status) {
  return Object.entries(status?.stalled ?? {}).map(([what, { since, reason }]) =>
    `${STALLED[what] ?? what} since ${new Date(since).toLocaleString()} (${reason})`);
}

async function look() {
  const status = state.viewer ? null : (await ask("/status")).content;
  if (status) showStatus(status);
  else at("now").hidden = true;
  const listed = await ask("/snapshots", state.tag);
  if (listed) {
    const { latest, withheld, snapshots } = listed.content;
    state.shown = latest !== null;
    if (latest === null) {
      at("about").textContent = withheld
        ? `${count(withheld, "snapshot is", "snapshots are")} not private, and not shown.`
        : "No snapshot has been published yet."
          + (state.viewer ? " How far it is to the first is shown to operators only: counts are not private." : "");
    } else {
      const { content } = await ask(`/snapshots/${latest}?words=${WORDS}`);
      showSnapshot(content, snapshots);
      // Who may not see the figures of the daemon sees this all the same.
      badge("privacy", content.private ? "private snapshots" : "not private");
    }
    state.tag = listed.tag; // only now: a failure in between is tried again
  }
  showProgress(status);
  return status;
}

async function round() {
  if (state.busy) return;
  state.busy = true;
  try {
    if (document.visibilityState === "visible" && at("sign-in").hidden) {
      const status = await look();
      signIn(false);
      trouble(outages(status).map((text) => `${text[0].toUpperCase()}${text.slice(1)}.`).join(" "));
      const isAway = Boolean(status?.stalled.source);
      at("link").textContent = isAway ? STALLED.source : "live";
      at("link").dataset.state = isAway ? "lost" : "live";
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

at("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  state.token = at("token").value.trim();
  state.viewer = false;
  at("token").value = "";
  signIn(false);
  at("topics").focus({ preventScroll: true });
  round();
});
document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && round());
round();
