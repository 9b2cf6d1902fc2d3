// What the page saves: tables as CSV, drawings as PNG. All is made here; nothing is sent.

function save(name, content) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// RFC 4180. A word must not be taken for a formula by the program that opens the file.
function csv(rows) {
  const cell = (value) => {
    if (typeof value === "number") return String(value);
    const text = String(value ?? "");
    return `"${(/^[=+@\t\r-]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
  };
  const lines = rows.map((row) => `${row.map(cell).join(",")}\r\n`);
  return new Blob(lines, { type: "text/csv;charset=utf-8" });
}

function topicRows() {
  const weight = Number(at("relevance").value);
  const measures = ["prevalence", "lately", "npmi", "exclusivity"];
  const rows = [["topic", "name", ...measures, "lambda", "rank", "word", "probability", "lift"]];
  for (const topic of data.topics) {
    relevant(topic, weight).forEach((each, i) => {
      const lift = Number.isFinite(each.lift) ? Number(each.lift.toPrecision(4)) : null;
      const measures = [topic.share, topic.lately, topic.npmi, topic.exclusivity];
      rows.push([topic.id, topic.name, ...measures, weight, i + 1, each.text, each.p, lift]);
    });
  }
  return rows;
}

function courseRows(name, course) {
  const { labels, shares, documents } = course;
  const ids = Object.keys(shares);
  const head = [name, "documents", ...ids.map((id) => `topic ${id}`)];
  const rows = labels.map((label, i) => [label, documents[i], ...ids.map((id) => shares[id][i])]);
  return [head, ...rows];
}

function distanceRows() {
  const head = ["topic", ...data.topics.map((topic) => topic.id)];
  return [head, ...data.topics.map((topic, i) => [topic.id, ...data.topics.map((_, j) => hundredths(i, j) / 100)])];
}

const DRAWN = [
  ...["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family"],
  ...["font-weight", "visibility"],
];

// A drawing with the style that it has here, as a picture.
function picture(svg) {
  const copy = svg.cloneNode(true);
  const [old, made] = [svg, copy].map((each) => [each, ...each.querySelectorAll("*")]);
  old.forEach((part, i) => {
    const style = getComputedStyle(part);
    if (style.display === "none") made[i].setAttribute("display", "none");
    for (const name of DRAWN) made[i].setAttribute(name, style.getPropertyValue(name));
  });
  const { width, height } = svg.viewBox.baseVal;
  copy.setAttribute("width", 2 * width);
  copy.setAttribute("height", 2 * height);
  // What XML and addresses cannot hold is no loss to a picture.
  const text = new XMLSerializer().serializeToString(copy).replace(/[\p{Cs}\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]/gu, "");
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  return image.decode().then(() => image);
}

async function savePicture(name, drawing) {
  const image = drawing instanceof SVGElement ? await picture(drawing) : drawing;
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.width, image.height];
  const pen = canvas.getContext("2d");
  pen.fillStyle = getComputedStyle(document.querySelector(".panel")).backgroundColor;
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(image, 0, 0);
  canvas.toBlob((blob) => save(name, blob), "image/png");
}

const FILES = {
  "topics.csv": (name) => save(name, csv(topicRows())),
  "distances.csv": (name) => save(name, csv(distanceRows())),
  "time.csv": (name) => save(name, csv(courseRows("moment", data.course))),
  "classes.csv": (name) => save(name, csv(courseRows("class", data.classes))),
  "map.png": (name) => savePicture(name, document.querySelector(".map")),
  "likeness.png": (name) => savePicture(name, heat.canvas),
  "time.png": (name) => savePicture(name, chart),
  "classes.png": (name) => savePicture(name, document.querySelector(".bars")),
  "documents.png": (name) => savePicture(name, cloud.canvas),
};
for (const button of document.querySelectorAll("[data-save]")) {
  button.addEventListener("click", () => FILES[button.dataset.save](button.dataset.save));
}
for (const tools of document.querySelectorAll(".tools")) tools.hidden = false;
