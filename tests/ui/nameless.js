// Every visible control without a name that a screen reader could say.
() =>
  [...document.querySelectorAll("button, input, textarea, select")]
    .filter((control) => control.offsetParent && control.type !== "file")
    .filter((control) => {
      const labels = [...(control.labels || [])].map((label) => label.innerText).join("");
      const around = control.closest("label") ? control.closest("label").innerText : "";
      const own = control.getAttribute("aria-label") || control.getAttribute("aria-labelledby") || control.title;
      return !(own || control.innerText.trim() || labels.trim() || around.trim());
    })
    .map((control) => control.outerHTML.slice(0, 160));
