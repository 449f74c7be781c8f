"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const [KEY, FATE, RULES, SPEC, TRANSFER, BYTES, SOURCES, WHY] = [0, 1, 2, 3, 4, 5, 6, 7];
  const SLICE = 300; // rows that are made at once
  const OPENED = 60; // matches of a search up to which their subtrees are open at once
  const tree = document.getElementById("tree");
  const search = document.getElementById("search");
  const hidden = new Set();

  const element = (name, kind, text) => {
    const made = document.createElement(name);
    if (kind) made.className = kind;
    if (text !== undefined) made.textContent = text; // never as markup
    return made;
  };
  const plural = (count, one, many) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
  const size = (count) => {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    while (count >= 999.5 && unit < units.length - 1) { count /= 1024; unit += 1; }
    return `${count.toFixed(unit === 0 || count >= 99.95 ? 0 : count >= 9.995 ? 1 : 2)} ${units[unit]}`;
  };
  const parts = (key) => key.match(key.includes("/") ? /[^/]*\/|[^/]+$/g : /[^.]*\.|[^.]+$/g) || [key];

  // What a leaf was, where all of what it is made from is alike.
  const before = (leaf) => {
    const specs = [...new Set(leaf[SOURCES].map((source) => source[1]))].map((spec) => data.specs[spec]);
    if (!specs.length || specs.includes(undefined)) return "";
    const many = leaf[SOURCES].length > 1 && specs.length === 1 ? `${leaf[SOURCES].length} × ` : "";
    const told = many + specs.slice(0, 3).join(", ") + (specs.length > 3 ? ", …" : "");
    return told === data.specs[leaf[SPEC]] ? "" : `${told} → `;
  };
  const origin = (leaf) => {
    const keys = leaf[SOURCES].map((source) => source[0]);
    if (!keys.length || (keys.length === 1 && keys[0] === leaf[KEY])) return "";
    return "← " + keys.slice(0, 4).join(", ") + (keys.length > 4 ? `, … (${keys.length})` : "");
  };

  const leafRow = (name, leaf) => {
    const row = element("div", "leaf");
    const fate = data.fates[leaf[FATE]];
    row.dataset.key = leaf[KEY];
    row.append(element("span", "name", name), element("span", `chip ${fate}`, fate));
    row.append(element("span", "spec", before(leaf) + data.specs[leaf[SPEC]]));
    row.append(element("span", "way", leaf[WHY] || data.transfers[leaf[TRANSFER]]));
    const rule = element("span", "rule");
    for (const [path, line] of leaf[RULES].map((number) => data.rules[number])) {
      const link = element("a", "", `${path}, line ${line}`);
      link.href = `#L${line}`;
      rule.append(rule.hasChildNodes() ? " " : "", link);
    }
    row.append(rule);
    const from = origin(leaf);
    if (from) row.append(element("span", "from", from));
    return row;
  };

  // A subtree: its subtrees by name, its leaves, and totals. Rows are made when it is opened.
  const subtree = () => ({ inner: new Map(), leaves: [], count: 0, bytes: 0, ways: {} });
  const addLeaf = (totals, leaf) => {
    const way = leaf[TRANSFER] === null ? "dropped" : data.transfers[leaf[TRANSFER]];
    totals.count += 1;
    totals.bytes += leaf[BYTES];
    totals.ways[way] = (totals.ways[way] || 0) + leaf[BYTES];
    return totals;
  };
  const grown = (leaves) => {
    const root = subtree();
    for (const leaf of leaves) {
      const names = parts(leaf[KEY]);
      let at = addLeaf(root, leaf);
      for (const name of names.slice(0, -1)) {
        if (!at.inner.has(name)) at.inner.set(name, subtree());
        at = addLeaf(at.inner.get(name), leaf);
      }
      at.leaves.push([names[names.length - 1], leaf]);
    }
    return root;
  };

  const fill = (holder, node, open) => {
    const rows = [
      ...[...node.inner].map(([name, inner]) => () => folder(name, inner, open)),
      ...node.leaves.map(([name, leaf]) => () => leafRow(name, leaf)),
    ];
    const more = element("button", "more");
    more.type = "button";
    let made = 0;
    const slice = () => {
      for (const row of rows.slice(made, made + SLICE)) holder.insertBefore(row(), more.parentNode ? more : null);
      made = Math.min(rows.length, made + SLICE);
      more.textContent = `${plural(rows.length - made, "more row", "more rows")}`;
      if (made === rows.length) more.remove();
      else holder.append(more);
    };
    more.addEventListener("click", slice);
    slice();
  };

  const folder = (name, node, open) => {
    while (node.inner.size === 1 && !node.leaves.length) {
      const [[inner, next]] = node.inner;
      name += inner;
      node = next;
    }
    if (node.count === 1) return leafRow(name + node.leaves[0][0], node.leaves[0][1]); // no subtree of its own
    const made = element("details");
    const head = element("summary");
    head.append(element("span", "name", name));
    head.append(element("span", "count", `${plural(node.count, "leaf", "leaves")} · ${size(node.bytes)}`));
    made.append(head);
    let filled = false;
    const once = () => {
      if (made.open && !filled) { filled = true; fill(made, node, open); }
    };
    made.addEventListener("toggle", once);
    if (open) { made.open = true; once(); }
    return made;
  };

  // --- where the bytes went: a bar for everything, and one for each of the largest subtrees ---
  const WAYS = ["linked", "copied", "computed", "dropped"];
  const SUBTREES = 12; // that are shown at most; the smallest ones of more become one
  const WIDTH = 1000; // units of a bar from left to right

  const whole = document.querySelector("#picture > .bar");
  const bar = (name, ways, scale, made = whole.cloneNode()) => {
    const there = WAYS.filter((way) => ways[way]);
    const told = there.map((way) => `${way} ${size(ways[way])}`).join(", ") || "no bytes";
    made.setAttribute("aria-label", `${name}: ${told}`);
    let x = 0;
    for (const way of there) {
      const [part, title] = ["rect", "title"].map((kind) => document.createElementNS(whole.namespaceURI, kind));
      const width = WIDTH * ways[way] / scale;
      const place = { class: way, x: x.toFixed(2), y: 0, width: width.toFixed(2), height: 10 };
      for (const [key, value] of Object.entries(place)) part.setAttribute(key, value);
      title.textContent = `${way}: ${size(ways[way])}`;
      part.append(title);
      made.append(part);
      x += width;
    }
    return made;
  };
  const children = ({ name, inner, leaves }) => [
    ...[...inner].map(([part, node]) => ({ ...node, name: name + part })),
    ...leaves.map(([part, leaf]) => ({ ...addLeaf(subtree(), leaf), name: name + part })),
  ];
  const largestSubtrees = (all) => {
    const settled = [];
    let open = children({ ...all, name: "" });
    while (open.length) {
      const largest = open.reduce((one, other) => (other.bytes > one.bytes ? other : one));
      const inner = children(largest);
      open = open.filter((one) => one !== largest);
      if (!inner.length) settled.push(largest);
      else if (open.length + settled.length + inner.length <= SUBTREES) open.push(...inner);
      else settled.push({ ...largest, name: `${largest.name}…` });
    }
    settled.sort((one, other) => other.bytes - one.bytes);
    if (settled.length <= SUBTREES) return settled;
    const others = { name: "(others)", count: 0, bytes: 0, ways: {} };
    for (const one of settled.splice(SUBTREES - 1)) {
      others.count += one.count;
      others.bytes += one.bytes;
      for (const way of WAYS) others.ways[way] = (others.ways[way] || 0) + (one.ways[way] || 0);
    }
    return [...settled, others];
  };
  const picture = () => {
    const all = grown([...data.leaves, ...data.dropped]);
    const legend = element("ul", "legend");
    for (const way of WAYS) {
      const item = element("li", way);
      item.append(element("i"), `${way} `, element("b", "", size(all.ways[way] || 0)));
      legend.append(item);
    }
    const table = element("table", "bars");
    table.createTHead().insertRow().append(...["subtree", "", "leaves", "size"].map((text) => element("th", "", text)));
    const [body, found] = [table.createTBody(), largestSubtrees(all)];
    for (const one of found) {
      const row = body.insertRow();
      row.append(element("th", "", one.name));
      row.insertCell().append(bar(one.name, one.ways, found[0].bytes));
      row.insertCell().textContent = one.count.toLocaleString("en");
      row.insertCell().textContent = size(one.bytes);
    }
    whole.before(legend);
    whole.after(table);
    bar("everything", all.ways, all.bytes, whole);
  };
  picture();

  // Every word has to be in a leaf's text; /…/ is a regular expression on it.
  const matcher = (wanted) => {
    const whole = /^\/(.+)\/$/.exec(wanted);
    if (whole) {
      try {
        const pattern = new RegExp(whole[1], "i");
        return (text) => pattern.test(text);
      } catch {
        return () => false;
      }
    }
    const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
    return (text) => { const low = text.toLowerCase(); return words.every((word) => low.includes(word)); };
  };
  const about = (leaf) => [
    leaf[KEY], data.fates[leaf[FATE]], data.specs[leaf[SPEC]], leaf[WHY],
    ...leaf[RULES].map((number) => data.rules[number].join(" line ")),
    leaf[TRANSFER] === null ? "" : data.transfers[leaf[TRANSFER]],
    ...leaf[SOURCES].map((source) => source[0]),
  ].join(" ");

  const show = (folded) => {
    const wanted = search.value.trim();
    const matches = matcher(wanted);
    const chosen = (leaves) => leaves.filter(
      (leaf) => !hidden.has(leaf[FATE]) && (!wanted || matches(about(leaf))));
    const [kept, gone] = [chosen(data.leaves), chosen(data.dropped)];
    const found = kept.length + gone.length;
    tree.replaceChildren();
    for (const [name, leaves] of [["Result", kept], ["Dropped", gone]]) {
      if (!leaves.length) continue;
      const root = grown(leaves);
      const made = element("details");
      const head = element("summary");
      head.append(element("b", "", name));
      head.append(element("span", "count", `${plural(root.count, "leaf", "leaves")} · ${size(root.bytes)}`));
      made.append(head);
      fill(made, root, !folded && found <= OPENED);
      made.open = true;
      tree.append(made);
      const only = root.inner.size === 1 && made.querySelector("details");
      if (only && !folded) only.open = true; // it says nothing alone
    }
    const all = data.leaves.length + data.dropped.length;
    document.getElementById("found").textContent =
      found === all ? plural(all, "leaf", "leaves") : `${found.toLocaleString("en")} of ${plural(all, "leaf", "leaves")}`;
  };

  data.fates.forEach((fate, number) => {
    const button = element("button", fate, fate);
    button.type = "button";
    button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => {
      if (!hidden.delete(number)) hidden.add(number);
      button.setAttribute("aria-pressed", String(!hidden.has(number)));
      show(false);
    });
    document.getElementById("fates").append(button);
  });
  let waiting = 0;
  search.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => show(false), 120);
  });
  document.getElementById("controls").addEventListener("submit", (event) => event.preventDefault());
  document.getElementById("fold").addEventListener("click", () => show(true));
  // `#search=words` opens the page with a search, so that one can be sent to somebody.
  const asked = /^#search=(.*)$/.exec(location.hash);
  if (asked) search.value = decodeURIComponent(asked[1]);
  show(false);
})();
