// The stack trace of one target round (Figure 1 of the paper): every round unfolded into the rounds of the level below.
// Value: {"models": [...], "slots": [...], "rounds": [node, …]}; a node is
// {"l": level, "k": kept, "b": [[text, level], …], "n": [text, outcome] or null, "s": seconds, "c": [nodes below]} (ui/stack_trace.py).
(function () {
  const { make } = hsd;

  function token(text, slot, cls) {
    return make("span", "tk t" + slot + " " + (cls || ""), text.replace(/\n/g, "⏎") || "∅");
  }

  function box(node, value) {
    const name = value.models[node.l], slot = value.slots[node.l];
    const round = make("div", "round edge" + slot);
    const line = make("div", "round-line");
    line.append(make("span", "swatch m" + slot, "", { "aria-hidden": "true" }), make("b", "", name));
    const bottom = !node.c.length && node.n === null;
    line.append(make("span", "muted", bottom ? "drafts" : node.b.length ? "keeps " + node.k + " of " + node.b.length : "takes one step alone"));
    line.append(make("span", "muted end", (node.s * 1000).toFixed(node.s < 0.01 ? 2 : 1) + " ms"));
    const tokens = make("div", "round-tokens");
    node.b.forEach(([text, level], i) => {
      const rejected = i >= node.k;
      const shown = token(text, value.slots[level], rejected ? "rejected" : "");
      if (rejected) { const struck = make("del", "", "", { "aria-label": "rejected" }); struck.append(shown); tokens.append(struck); }
      else tokens.append(shown);
    });
    if (node.n) {
      tokens.append(make("span", "muted", node.n[1] === "bonus" ? "+ bonus" : node.b.length ? "→ instead" : "→"));
      tokens.append(token(node.n[0], slot, node.n[1]));
    }
    round.append(line, tokens);
    if (node.c.length) {
      const below = make("div", "below");
      node.c.forEach((child) => below.append(box(child, value)));
      round.append(below);
    }
    return round;
  }

  hsd.stack = function (element, props, watch) {
    const slot = hsd.slot(element);
    const bar = make("div", "stack-bar");
    const button = (label, name) => make("button", "plain", label, Object.assign({ type: "button" }, name && { "aria-label": name }));
    const back = button("◀", "Previous target round"), play = button("▶ Replay"), next = button("▶", "Next target round");
    const range = make("input", "", "", { type: "range", min: "1", value: "1", "aria-label": "Target round" });
    const count = make("span", "muted");
    const view = make("div", "stack-view");
    view.setAttribute("tabindex", "0");
    view.setAttribute("role", "region");
    view.setAttribute("aria-label", "Rounds of every level in this target round");
    bar.append(back, range, next, play, count);
    slot.append(bar, view);
    let at = 0, timer = 0, data = hsd.read(props.value);

    function show(index) {
      const rounds = (data && data.rounds) || [];
      bar.hidden = !rounds.length;
      if (!rounds.length) { view.replaceChildren(make("p", "muted", slot.dataset.empty)); return; }
      at = Math.max(0, Math.min(rounds.length - 1, index));
      range.max = rounds.length;
      range.value = at + 1;
      count.textContent = "target round " + (rounds[at].r + 1) + (rounds.length > 1 ? " of " + rounds.length : "");
      view.replaceChildren(box(rounds[at], data));
      back.disabled = at === 0;
      next.disabled = at === rounds.length - 1;
    }
    function halt() { clearInterval(timer); timer = 0; play.textContent = "▶ Replay"; }
    back.onclick = () => { halt(); show(at - 1); };
    next.onclick = () => { halt(); show(at + 1); };
    range.oninput = () => { halt(); show(Number(range.value) - 1); };
    play.onclick = () => {
      if (timer) { halt(); return; }
      const rounds = data.rounds;
      if (at === rounds.length - 1) show(0);
      play.textContent = "❚❚ Pause";
      timer = setInterval(() => { if (at >= data.rounds.length - 1) halt(); else show(at + 1); }, 1500);
    };
    document.addEventListener("hsd-round", (event) => {
      const index = ((data && data.rounds) || []).findIndex((round) => round.r === event.detail);
      if (index >= 0) { halt(); show(index); }
    });
    show(0);
    const draw = (value) => { halt(); data = hsd.read(value); show(0); };
    hsd.drawn(element, draw);
    watch("value", () => draw(props.value));
  };
})();
