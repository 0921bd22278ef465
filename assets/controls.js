// Two lists of native inputs that Gradio has no component for: candidates of which some are disabled with a reason, and sliders
// whose number depends on the measurement. Both hand a plain value to the server and draw every label as text.
(function () {
  const { make } = hsd;

  hsd.picker = function (element, props, trigger, watch) {
    const slot = hsd.slot(element);
    function draw() {
      const { rows = [], selected = [], unusable = "", waiting = "" } = hsd.read(props.value) || {};
      const focus = document.activeElement && slot.contains(document.activeElement) ? document.activeElement.dataset.name : null;
      const open = slot.querySelector("details") && slot.querySelector("details").open;
      const line = (row) => {
        const label = make("label", "pick-row" + (row.status === "unusable" ? " off" : ""));
        const box = make("input", "", "", { type: "checkbox" });
        box.dataset.name = row.name;
        box.checked = selected.includes(row.name);
        box.disabled = row.status === "unusable";
        const words = make("span", "pick-words");
        const head = make("span", "pick-name");
        if (!box.disabled) head.append(make("span", "swatch m" + row.slot, "", { "aria-hidden": "true" }));
        head.append(make("b", "", row.name));
        words.append(head, make("small", "muted", row.facts));
        if (row.reason) words.append(make("small", box.disabled ? "reason" : "muted", row.reason));
        box.onchange = () => {
          const value = hsd.read(props.value), now = new Set(value.selected);
          if (box.checked) now.add(row.name); else now.delete(row.name);
          const names = value.rows.map((r) => r.name);
          props.value = JSON.stringify(Object.assign(value, { selected: names.filter((name) => now.has(name)) }));
          trigger("change");
        };
        label.append(box, words);
        return label;
      };
      const usable = rows.filter((row) => row.status !== "unusable"), rest = rows.filter((row) => row.status === "unusable");
      slot.replaceChildren(...(rows.length || !waiting ? usable.map(line) : [make("p", "muted small", waiting)]));
      if (rest.length) {
        const folded = make("details", "folded");
        folded.open = Boolean(open);
        folded.append(make("summary", "small muted", rest.length + " " + unusable), ...rest.map(line));
        slot.append(folded);
      }
      if (focus) slot.querySelectorAll("input").forEach((box) => { if (box.dataset.name === focus) box.focus(); });
    }
    draw();
    watch("value", draw);
  };

  hsd.sliders = function (element, props, trigger, watch) {
    const slot = hsd.slot(element);
    let drawn = "", timer = 0;
    function draw() {
      const value = hsd.read(props.value) || { sliders: [] };
      const shape = JSON.stringify(value.sliders);
      if (shape === drawn) return; // only the answer to our own change came back
      drawn = shape;
      const now = Object.assign({}, value.values);
      const groups = new Map();
      for (const one of value.sliders) {
        if (!groups.has(one.group)) {
          const set = make("fieldset", "slider-group");
          set.append(make("legend", "", one.group));
          groups.set(one.group, set);
        }
        const line = make("label", "slider");
        const shown = make("output", "", "");
        const range = make("input", "", "", { type: "range", min: one.min, max: one.max, step: one.step });
        range.value = now[one.id] === undefined ? one.base : now[one.id];
        const say = () => { shown.textContent = Number(range.value).toFixed(one.digits) + one.unit; };
        say();
        range.oninput = () => {
          say();
          now[one.id] = Number(range.value);
          if (timer) return;
          timer = setTimeout(() => { timer = 0; props.value = JSON.stringify({ sliders: value.sliders, values: now }); trigger("change"); }, 40);
        };
        line.append(make("span", "slider-name", one.label), shown, range);
        groups.get(one.group).append(line);
      }
      slot.replaceChildren(...(groups.size ? groups.values() : [make("p", "muted", slot.dataset.empty)]));
    }
    draw();
    watch("value", draw);
  };
})();
