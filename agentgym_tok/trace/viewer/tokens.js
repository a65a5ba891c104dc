// Tokens as boxes, a page of them at a time.

const PAGE = 2000;
// Lower ends of the steps of probability that boxes are coloured by.
const STEPS = [0.99, 0.9, 0.5, 0.2, 0.05, 0];
const ADVANTAGES = [
  [-1.25, "n3"],
  [-0.5, "n2"],
  [-0.05, "n1"],
  [0.05, "zero"],
  [0.5, "p1"],
  [1.25, "p2"],
  [Infinity, "p3"],
];

function likelihood(logprob) {
  const chance = Math.exp(logprob);
  return STEPS.findIndex((step) => chance >= step);
}

function leaning(advantage) {
  return ADVANTAGES.find(([end]) => advantage < end || end === Infinity)[1];
}

/** Make the box of an id; the style sheet shows its number where there is no text. */
function tokenBox(id, text = "") {
  const box = el("span.t", visible(text.length > MOST ? `${text.slice(0, MOST)}\u2026` : text));
  if (!text) box.classList.add("bare");
  if (text.includes("\n")) box.classList.add("nl");
  box.dataset.id = id;
  return box;
}

class Tokens {
  /**
   * @param title What the ids are.
   * @param segments Spans: `{origin, label, ids, logprobs, versions, trained, advantage, marks}`.
   * @param words Texts of ids.
   * @param tell Is given the box of a token that is looked at, and whether it was chosen.
   */
  constructor(title, segments, words, tell) {
    Object.assign(this, { segments, words, tell });
    this.total = 0;
    for (const segment of segments) {
      segment.start = this.total;
      this.total += segment.ids.length;
    }
    this.flow = el("div.flow");
    this.flow.tabIndex = 0;
    this.flow.setAttribute("role", "group");
    this.flow.setAttribute("aria-label", title);
    this.range = el("span.range");
    this.pager = el("div.pager");
    this.root = el("section.tokens", el("div.title", el("h3", title), this.range, this.pager), this.flow);
    this.flow.addEventListener("pointerover", (event) => this.look(event.target.closest(".t")));
    this.flow.addEventListener("click", (event) => this.choose(event.target.closest(".t"), true));
    this.flow.addEventListener("keydown", (event) => this.press(event));
    this.page(Math.max(0, Math.ceil(this.total / PAGE) - 1));
  }

  get pages() {
    return Math.max(1, Math.ceil(this.total / PAGE));
  }

  /** Show one page. */
  page(number) {
    this.chosen = null;
    const from = number * PAGE;
    const to = Math.min(this.total, from + PAGE);
    this.boxes = [];
    this.flow.replaceChildren(...this.segments.map((segment) => this.segment(segment, from, to)).filter(Boolean));
    if (!this.total) this.flow.append(el("p.empty", "no ids"));
    this.range.textContent =
      this.pages > 1 ? `ids ${whole(from)} to ${whole(to - 1)} of ${whole(this.total)}` : count(this.total, "id");
    const go = (label, target) => {
      const made = button(label, () => this.page(target));
      made.disabled = target < 0 || target >= this.pages || target === number;
      return made;
    };
    const moves = [go("First", 0), go("Earlier", number - 1), go("Later", number + 1), go("Last", this.pages - 1)];
    this.pager.replaceChildren(...(this.pages > 1 ? moves : []));
  }

  segment(segment, from, to) {
    const start = Math.max(from, segment.start);
    const end = Math.min(to, segment.start + segment.ids.length);
    const last = segment === this.segments.at(-1) && to === this.total;
    if (start >= end && !(last && segment.marks?.size)) return null;
    const boxes = el("div.boxes");
    for (let at = start; at < end; at += 1) boxes.append(this.box(segment, at - segment.start));
    const after = last ? segment.marks?.get(segment.ids.length) : undefined;
    if (after) boxes.append(this.end(segment, after));
    const cut = start > segment.start ? `, from its id ${whole(start - segment.start)}` : "";
    const name = el("div.origin", el("b", segment.origin), ` ${segment.label}${cut}`);
    const made = el(`div.segment.o-${segment.origin}`, name, boxes);
    if (segment.advantage !== null) made.classList.add(`a-${leaning(segment.advantage)}`);
    return made;
  }

  box(segment, offset) {
    const box = tokenBox(segment.ids[offset], this.words.get(segment.ids[offset]));
    if (segment.logprobs) box.classList.add(`l${likelihood(segment.logprobs[offset])}`);
    const marks = segment.marks?.get(offset);
    if (marks) {
      box.classList.add("drift");
      box.dataset.drift = marks.map((mark) => mark.kind).join(", ");
    }
    for (const [start, found] of segment.marks ?? []) {
      const inside = found.some((mark) => start < offset && offset < start + mark.extent);
      if (inside) box.classList.add("drifted");
    }
    Object.assign(box, { segment, offset, marks });
    this.boxes.push(box);
    return box;
  }

  /** A mark behind the last id: a text pipeline goes on there. */
  end(segment, marks) {
    const box = el("span.t.end.drift", "end");
    box.dataset.drift = marks.map((mark) => mark.kind).join(", ");
    Object.assign(box, { segment, offset: segment.ids.length, marks });
    this.boxes.push(box);
    return box;
  }

  look(box) {
    if (box) this.tell(box, false);
  }

  /** Keep a token's facts in sight; once more lets them go. */
  choose(box, toggle = false) {
    if (!box) return;
    const same = toggle && box === this.chosen;
    this.release();
    if (same) return;
    this.chosen = box;
    box.classList.add("chosen");
    box.scrollIntoView({ block: "nearest" });
    this.tell(box, true);
  }

  release() {
    this.chosen?.classList.remove("chosen");
    this.chosen = null;
  }

  /** Show and choose the token at a position. */
  go(position) {
    this.page(Math.min(this.pages - 1, Math.floor(position / PAGE)));
    const found = this.boxes.find((box) => box.segment.start + box.offset === position);
    this.choose(found ?? this.boxes.at(-1));
    this.flow.focus({ preventScroll: true });
  }

  press(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") this.release();
    if (!by || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const place = this.boxes.indexOf(this.chosen);
    const next = place < 0 ? (by > 0 ? 0 : this.boxes.length - 1) : place + by;
    this.choose(this.boxes[next]);
  }
}
