// How alike topics are, as a drawing and a table; and the moments of the chart over time.

const inOrder = data.order.map((i) => data.topics[i].id);

function hundredths(i, j) {
  return i === j ? 0 : data.distances[Math.max(i, j)][Math.min(i, j)];
}

const far = (i, j) => (hundredths(i, j) / 100).toFixed(2);

const heat = {
  canvas: at("heat"),
  pair: [0, Math.min(1, data.topics.length - 1)],

  // Room for the names of topics at the left and above, in pixels of the screen.
  edge: 30,

  draw() {
    const { canvas, edge } = this;
    const scale = window.devicePixelRatio || 1;
    const side = canvas.clientWidth;
    const n = data.topics.length;
    const cell = (side - edge) / n;
    const style = getComputedStyle(canvas);
    canvas.width = canvas.height = Math.round(side * scale);
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    const all = data.distances.flat();
    const [near, most] = [Math.min(...all), Math.max(...all)];
    pen.fillStyle = style.getPropertyValue("--accent");
    for (let i = 0; i < n; i += 1) {
      for (let j = 0; j < n; j += 1) {
        const distance = hundredths(data.order[i], data.order[j]);
        pen.globalAlpha = i === j ? 1 : 0.04 + (0.9 * (most - distance)) / (most - near || 1);
        pen.fillRect(edge + j * cell, edge + i * cell, cell - (cell > 6), cell - (cell > 6));
      }
    }
    pen.globalAlpha = 1;
    pen.fillStyle = style.color;
    pen.font = `11px ${style.fontFamily}`;
    pen.textBaseline = "middle";
    const every = Math.ceil(20 / cell);
    for (let i = 0; i < n; i += every) {
      pen.textAlign = "right";
      pen.fillText(inOrder[i], edge - 5, edge + (i + 0.5) * cell);
      pen.textAlign = "center";
      pen.fillText(inOrder[i], edge + (i + 0.5) * cell, edge - 10);
    }
    const [row, column] = this.pair;
    pen.lineWidth = 2;
    pen.strokeStyle = style.color;
    pen.strokeRect(edge + column * cell, edge + row * cell, cell, cell);
  },

  show(row, column) {
    const n = data.topics.length - 1;
    this.pair = [row, column].map((i) => Math.min(n, Math.max(0, i)));
    const [i, j] = this.pair.map((each) => data.order[each]);
    const [one, other] = [data.topics[i], data.topics[j]];
    const common = one.words.filter((each) => other.words.includes(each)).slice(0, 6);
    const words = common.map((each) => isolated(data.words[each])).join(" ");
    at("pair").textContent =
      `Topic ${one.id} and Topic ${other.id}: ${far(i, j)} apart` + (words && `; both have ${words}`);
    this.draw();
  },

  begin() {
    const { canvas, edge } = this;
    at("likeness-drawing").hidden = false;
    canvas.addEventListener("pointermove", (event) => {
      const box = canvas.getBoundingClientRect();
      const cell = (box.width - edge) / data.topics.length;
      const place = [event.clientY - box.top, event.clientX - box.left];
      const [row, column] = place.map((x) => Math.floor((x - edge) / cell));
      if (row >= 0 && column >= 0) this.show(row, column);
    });
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    canvas.addEventListener("keydown", (event) => {
      const step = steps[event.key];
      if (step === undefined) return;
      event.preventDefault();
      this.show(this.pair[0] + step[0], this.pair[1] + step[1]);
    });
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    this.show(...this.pair);
  },
};

// Makes a table when it is opened first; a cell is a text and its shade, 0 to 4.
function fill(id, head, rows) {
  const made = () => {
    const table = document.querySelector(`#${id} table`);
    const cells = (tag, texts) => texts.map((text) => element(tag, text));
    const top = element("tr");
    top.append(...cells("th", head));
    for (const cell of top.children) cell.scope = "col";
    const body = document.createElement("tbody");
    for (const [name, texts, shades] of rows()) {
      const row = element("tr");
      row.append(element("th", name), ...cells("td", texts));
      row.firstChild.scope = "row";
      shades?.forEach((shade, i) => row.children[i + 1].classList.add(`heat-${shade}`));
      body.append(row);
    }
    table.createTHead().append(top);
    table.append(body);
  };
  at(id).addEventListener("toggle", made, { once: true });
}

function distances() {
  return data.topics.map((topic, i) => [topic.id, data.topics.map((_, j) => far(i, j))]);
}

function shares(course) {
  const courses = Object.entries(course.shares);
  const most = Math.max(...courses.flatMap(([, course]) => course)) || 1;
  return courses.map(([id, course]) => [
    id,
    course.map(percent),
    course.map((share) => Math.min(4, Math.floor(5 * Math.sqrt((share ?? 0) / most)))),
  ]);
}

// The shares of one moment, where the pointer or an arrow key goes.
function beginCourse(chart) {
  const { labels, at: places, shares, documents } = data.course;
  const [left, right] = [Number(chart.dataset.left), Number(chart.dataset.right)];
  let moment = labels.length - 1;

  function show(i) {
    moment = Math.min(labels.length - 1, Math.max(0, i));
    const x = left + places[moment] * (right - left);
    for (const end of ["x1", "x2"]) at("cursor").setAttribute(end, x);
    at("cursor").setAttribute("visibility", "visible");
    const largest = Object.entries(shares)
      .filter(([, course]) => course[moment] !== null)
      .sort(([, a], [, b]) => b[moment] - a[moment]);
    const own = largest.filter(([id]) => Number(id) === chosen);
    const named = [...new Set([...own, ...largest.slice(0, 5)])];
    const told = named.map(([id, course]) => `Topic ${id} ${percent(course[moment])}`).join(", ");
    const many = documents[moment].toLocaleString("en");
    at("moment").textContent = `${labels[moment]} (${many} documents): ${told}`;
  }

  chart.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * chart.viewBox.baseVal.width;
    const place = (x - left) / (right - left);
    const apart = places.map((each) => Math.abs(each - place));
    show(apart.indexOf(Math.min(...apart)));
  });
  chart.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    show(moment + step);
  });
  chart.addEventListener("focus", () => show(moment));
}

heat.begin();
fill("distances", ["Topic", ...data.topics.map((topic) => topic.id)], distances);
const chart = document.querySelector(".lines");
if (chart !== null) {
  beginCourse(chart);
  fill("shares", ["Topic", ...data.course.labels], () => shares(data.course));
}
