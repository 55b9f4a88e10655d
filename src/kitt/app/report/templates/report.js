"use strict";
// A link to a part that is folded opens it.
function openPart() {
  const part = location.hash && document.getElementById(location.hash.slice(1));
  if (part?.tagName === "DETAILS") part.open = true;
}
addEventListener("hashchange", openPart);
openPart();
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
