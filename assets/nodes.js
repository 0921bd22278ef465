// Builds page content from data (ui/nodes.py). Text only ever becomes a text node: nothing here parses HTML.
window.hsd = window.hsd || {};
(function () {
  const TAGS = new Set(("div span br p strong em b small code pre h2 h3 h4 ul ol li dl dt dd table caption thead tbody tr th td " +
    "del mark section label kbd sup details summary").split(" "));
  const ATTRIBUTES = /^(class|title|id|role|tabindex|colspan|rowspan|scope|lang|dir|aria-[a-z]+|data-[a-z]+)$/;

  function build(node) {
    if (typeof node === "string") return document.createTextNode(node);
    const [tag, attributes, ...children] = node;
    const made = document.createElement(TAGS.has(tag) ? tag : "span");
    for (const [name, value] of Object.entries(attributes || {})) if (ATTRIBUTES.test(name)) made.setAttribute(name, value);
    const width = Number(made.dataset.width);
    if (made.dataset.width !== undefined && Number.isFinite(width)) made.style.width = Math.max(0, Math.min(100, width)) + "%";
    made.append(...children.map(build));
    return made;
  }

  function make(tag, cls, text, attributes) {
    const made = document.createElement(tag);
    if (cls) made.className = cls;
    if (text) made.textContent = text;
    for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
    return made;
  }

  hsd.build = build;
  hsd.make = make;
  hsd.read = (value) => (value ? JSON.parse(value) : null); // values come as JSON text (json_html in ui/nodes.py)
  hsd.slot = (element) => element.querySelector(".hsd-slot");

  // What is shown by the id of its component, so that the values of a run can be drawn without Gradio's round through every component.
  const drawers = new Map();
  hsd.drawn = (element, draw) => { const block = element.closest(".block"); if (block && block.id) drawers.set(block.id, draw); };
  hsd.draw = (id, value) => { if (drawers.has(id)) drawers.get(id)(value); };

  // Sets the texts in which `now` differs from `was`; false when more than texts differ, and then `dom` has to be built again.
  function retext(dom, was, now) {
    if (typeof was === "string" || typeof now === "string") {
      if (typeof was !== typeof now) return false;
      if (was !== now) dom.data = now;
      return true;
    }
    if (was.length !== now.length || was[0] !== now[0] || JSON.stringify(was[1]) !== JSON.stringify(now[1])) return false;
    return now.slice(2).every((child, i) => retext(dom.childNodes[i], was[i + 2], child));
  }

  hsd.nodes = function (element, props, watch) {
    const slot = hsd.slot(element);
    let shown = null;
    function draw(value) {
      const now = hsd.read(value);
      if (!(shown && now && retext(slot.firstChild, shown, now))) slot.replaceChildren(...(now ? [build(now)] : []));
      shown = now;
      for (const name of ["ids", "ticket"]) if (now && now[1]["data-" + name]) hsd.keep(name, now[1]["data-" + name]);
      const block = element.closest(".block"), bar = element.closest("#bar");
      if (block) block.toggleAttribute("data-full", Boolean(now));
      if (bar && now && now[1]["data-state"]) bar.dataset.state = now[1]["data-state"]; // how Stop looks
    }
    draw(props.value);
    hsd.drawn(element, draw);
    watch("value", () => draw(props.value));
  };

  // Plots drawn while their tab was hidden have no width yet: when a tab shows, every plot in it is fitted once more.
  function fitPlots() {
    if (!window.Plotly) return;
    document.querySelectorAll(".js-plotly-plot").forEach((plot) => { if (plot.offsetParent) window.Plotly.Plots.resize(plot); });
  }
  document.addEventListener("click", (event) => {
    if (event.target.closest && event.target.closest("[role=tab], .sidebar button, .label-wrap")) [60, 350].forEach((ms) => setTimeout(fitPlots, ms));
  });
  document.addEventListener("keyup", (event) => {
    if (document.activeElement && document.activeElement.getAttribute("role") === "tab") setTimeout(fitPlots, 60);
  });

  // A main action shows its own step.
  hsd.step = function (name) {
    const tab = document.getElementById("tab-" + name + "-button");
    if (tab && tab.getAttribute("aria-selected") !== "true") tab.click();
  };

  // What the tab has for when the page is loaded anew; a browser that stores nothing for a page in a frame refuses.
  hsd.keep = function (name, value) { try { sessionStorage.setItem("hsd-" + name, value); } catch (refused) { /* as before */ } };
  function kept(name) { try { return sessionStorage.getItem("hsd-" + name); } catch (refused) { return null; } }

  // Ids of the tab's results and the ticket of its run as one JSON text, empty on a first visit.
  hsd.kept = function () {
    const ids = kept("ids"), ticket = kept("ticket");
    return ids || ticket ? JSON.stringify(Object.assign(JSON.parse(ids || "{}"), { ticket })) : "";
  };

  // What was filled in, or the fields as they are `now` when nothing was; `form` names the fields, which another version has others of.
  hsd.keepForm = function (form, now) { hsd.keep("form", JSON.stringify({ form, now })); };
  hsd.form = function (form, now) {
    const before = JSON.parse(kept("form") || "{}");
    return before.form === form ? before.now : now;
  };

  // The sidebar would cover a phone's whole screen on arrival.
  hsd.arrive = function () {
    if (window.innerWidth < 768) {
      const close = document.querySelector(".sidebar.open .toggle-button, .sidebar.open button.toggle-button");
      if (close) close.click();
    }
    document.querySelectorAll(".sidebar .toggle-button").forEach((button) => button.setAttribute("aria-label", "Show or hide the models"));
  };
})();
