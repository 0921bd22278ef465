// Gradio's status trackers count seconds with every frame, also the hidden ones, and the one of its loading screen never stops. In
// a browser that draws in software that takes 8 % of a core as long as the page is open; here they count once a second.
(function () {
  const frame = window.requestAnimationFrame.bind(window);
  const COUNTS_SECONDS = /\(performance\.now\(\)-\w+\(\w+\)\)\/1e3/;
  window.requestAnimationFrame = (callback) => (COUNTS_SECONDS.test(callback) ? setTimeout(callback, 1000) : frame(callback));
})();
