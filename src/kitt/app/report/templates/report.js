"use strict";
// Copy buttons: hidden in the page, shown here, so that nobody sees one that does nothing.
for (const button of document.querySelectorAll(".tabs button")) {
  const source = button.parentElement.querySelector("code");
  button.hidden = false;
  button.addEventListener("click", async () => {
    let done = false;
    try {
      await navigator.clipboard.writeText(source.textContent);
      done = true;
    } catch {
      getSelection().selectAllChildren(source);
      done = document.execCommand("copy");
    }
    button.textContent = done ? "Copied" : "Press Ctrl+C";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}
