// A list of any length: rows of one height, of which only those in sight are elements.

const AROUND = 6;

class List {
  /**
   * @param root The element that scrolls; it has a role already.
   * @param height Of a row, in pixels.
   * @param draw Fills a row's element: `draw(item, element, place)`.
   * @param choose Is told which item was chosen, and by what: "mouse" or "key".
   * @param key Names an item, so that the chosen one is found again in another list of items.
   */
  constructor(root, height, draw, choose, key) {
    Object.assign(this, { root, height, draw, choose, key });
    this.items = [];
    this.drawn = new Map();
    this.chosen = null;
    this.inner = el("div.rows");
    this.inner.setAttribute("role", "presentation");
    root.replaceChildren(this.inner);
    root.addEventListener("scroll", () => this.scroll(), { passive: true });
    root.addEventListener("keydown", (event) => this.press(event));
    this.inner.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (row) this.choose(this.items[row.place], "mouse");
    });
    new ResizeObserver(() => this.scroll()).observe(root);
  }

  /** Show other items. */
  fill(items) {
    this.items = items;
    this.inner.style.height = `${items.length * this.height}px`;
    this.show();
  }

  get place() {
    return this.items.findIndex((item) => this.key(item) === this.chosen);
  }

  /** Mark an item, and bring it into sight. */
  mark(key) {
    this.chosen = key;
    const place = this.place;
    if (place >= 0) {
      const top = place * this.height;
      const { scrollTop, clientHeight } = this.root;
      if (top < scrollTop) this.root.scrollTop = top;
      else if (top + this.height > scrollTop + clientHeight) this.root.scrollTop = top + this.height - clientHeight;
    }
    this.show();
  }

  /** Draw the rows in sight anew. */
  show() {
    this.drawn.clear();
    this.inner.replaceChildren();
    this.scroll();
  }

  /** Draw the rows that came into sight; the others stay, since a click may be going on in one. */
  scroll() {
    const first = Math.max(0, Math.floor(this.root.scrollTop / this.height) - AROUND);
    const end = Math.min(this.items.length, first + Math.ceil(this.root.clientHeight / this.height) + 2 * AROUND);
    for (const [place, row] of this.drawn) {
      if (place >= first && place < end) continue;
      row.remove();
      this.drawn.delete(place);
    }
    for (let place = first; place < end; place += 1) {
      if (this.drawn.has(place)) continue;
      const row = this.row(this.items[place], place);
      this.drawn.set(place, row);
      this.inner.append(row);
    }
    const chosen = this.drawn.get(this.place);
    if (chosen) this.root.setAttribute("aria-activedescendant", chosen.id);
    else this.root.removeAttribute("aria-activedescendant");
  }

  row(item, place) {
    const row = el("div.row");
    row.place = place;
    row.id = `${this.root.id}-${place}`;
    row.style.top = `${place * this.height}px`;
    row.style.height = `${this.height}px`;
    row.setAttribute("role", this.root.getAttribute("role") === "tree" ? "treeitem" : "option");
    row.setAttribute("aria-posinset", place + 1);
    row.setAttribute("aria-setsize", this.items.length);
    row.setAttribute("aria-selected", this.key(item) === this.chosen);
    this.draw(item, row, place);
    return row;
  }

  /** Choose the item so many rows away from the chosen one. */
  move(by) {
    if (!this.items.length) return;
    const place = this.place;
    const next = place < 0 ? 0 : Math.min(this.items.length - 1, Math.max(0, place + by));
    if (next !== place) this.choose(this.items[next], "key");
  }

  press(event) {
    const page = Math.max(1, Math.floor(this.root.clientHeight / this.height) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (!(event.key in steps) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.move(steps[event.key]);
  }
}
