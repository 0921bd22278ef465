// Every visible text whose contrast with what is behind it is below 4.5:1, in the page and in the plots.
() => {
  const rgb = (text) => (text.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const over = (top, under) => {
    const alpha = top[3] === undefined ? 1 : top[3];
    return [0, 1, 2].map((i) => alpha * top[i] + (1 - alpha) * under[i]);
  };
  const luminance = (colour) => {
    const [r, g, b] = colour.map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) layers.unshift(rgb(getComputedStyle(at).backgroundColor));
    return layers.reduce((under, top) => over(top, under), [255, 255, 255]);
  };
  const poor = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = walk.nextNode(); text; text = walk.nextNode()) {
    const node = text.parentElement;
    if (!text.textContent.trim() || ["SCRIPT", "STYLE", "NOSCRIPT"].includes(node.tagName)) continue;
    const style = getComputedStyle(node), box = node.getBoundingClientRect(), svg = node.closest("svg");
    if (!box.width || !box.height || style.visibility === "hidden" || node.closest(".sr, [disabled], .toast-wrap, .hoverlayer")) continue;
    if (svg && node.closest("#heatmap .annotation")) continue; // on a cell of its own colour: checked in test_figures.py
    const ground = behind(svg ? svg.parentElement : node);
    const [high, low] = [luminance(over(rgb(svg ? style.fill : style.color), ground)), luminance(ground)].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < 4.5) poor.push(`${ratio.toFixed(2)} ${node.tagName} “${text.textContent.trim().slice(0, 30)}”`);
  }
  return poor;
}
