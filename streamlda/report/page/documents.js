// The map of documents: a canvas, a search by title and class, and what is found as a list.

const LISTED = 20; // documents of a search that are listed
const REACH = 12; // pixels from the pointer to the document that it shows

const cloud = {
  canvas: at("cloud"),
  ...data.documents,

  // Places of the documents that stand out: those found, or those of the topic chosen on the map.
  found() {
    const wanted = at("find-document")?.value.trim().toLocaleLowerCase() ?? "";
    const group = at("class")?.value ?? "";
    this.searched = wanted !== "" || group !== "";
    const fits = ([, , topic, , own], i) => this.searched
      ? (group === "" || own === Number(group)) && (wanted === "" || (this.titles[i] ?? "").toLocaleLowerCase().includes(wanted))
      : data.topics[topic].id === chosen;
    return this.points.flatMap((point, i) => (fits(point, i) ? [i] : []));
  },

  told(i) {
    const [, , topic, share, group] = this.points[i];
    const parts = [this.titles?.[i], data.classes?.labels[group], `Topic ${data.topics[topic].id} ${share} %`];
    return parts.filter((part) => part).join(" · ");
  },

  draw() {
    const { canvas } = this;
    const scale = window.devicePixelRatio || 1;
    const size = canvas.clientWidth / 640;
    canvas.width = Math.round(640 * size * scale);
    canvas.height = Math.round(460 * size * scale);
    const pen = canvas.getContext("2d");
    pen.scale(size * scale, size * scale);
    const style = getComputedStyle(canvas);
    const found = new Set(this.found());
    const dots = (wanted, colour, alpha, radius) => {
      [pen.fillStyle, pen.globalAlpha] = [style.getPropertyValue(colour), alpha];
      this.points.forEach(([x, y], i) => {
        if (found.has(i) !== wanted) return;
        pen.beginPath();
        pen.arc(x, y, radius, 0, 2 * Math.PI);
        pen.fill();
      });
    };
    dots(false, "--quiet", 0.35, 2);
    dots(true, "--accent", 0.85, 3);
    pen.globalAlpha = 1;
    [pen.fillStyle, pen.font] = [style.color, `600 ${13 / Math.min(1, size)}px ${style.fontFamily}`];
    [pen.textAlign, pen.textBaseline] = ["center", "middle"];
    [pen.strokeStyle, pen.lineWidth] = [style.getPropertyValue("--panel"), 4];
    this.centres.forEach(([x, y], k) => {
      pen.strokeText(data.topics[k].id, x, y);
      pen.fillText(data.topics[k].id, x, y);
    });
  },

  find() {
    const found = this.found();
    at("found-documents").textContent = this.searched ? `${found.length} of ${this.points.length} documents` : "";
    const shown = this.searched ? found.slice(0, LISTED) : [];
    at("hits").replaceChildren(...shown.map((i) => {
      const item = element("li", `${this.told(i)} `);
      item.dir = "auto";
      return item;
    }));
    this.draw();
  },

  begin() {
    const { canvas } = this;
    at("cloud-drawing").hidden = false;
    canvas.addEventListener("pointermove", (event) => {
      const box = canvas.getBoundingClientRect();
      const size = box.width / 640;
      const far = ([x, y]) => Math.hypot(x * size - event.clientX + box.left, y * size - event.clientY + box.top);
      const apart = this.points.map(far);
      const least = Math.min(...apart);
      at("document").textContent = least > REACH ? "" : this.told(apart.indexOf(least));
    });
    at("find-document")?.addEventListener("input", () => this.find());
    at("class")?.addEventListener("change", () => this.find());
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    onChoose = () => this.draw();
    this.find();
  },
};

if (cloud.canvas !== null) cloud.begin();
if (data.classes !== null) fill("class-shares", ["Topic", ...data.classes.labels], () => shares(data.classes));
