/* Commands: words that stay whole, and buttons that copy them. */
const copying = (() => {
"use strict";
const { byId } = charts;
const put = (id, text) => {
  byId(id).replaceChildren(...text.split(" ").flatMap((word, i) => {
    const node = document.createElement("span");
    node.className = "word";
    node.textContent = word;
    return i ? [" ", node] : [node];
  }));
};
document.querySelectorAll("button.copy").forEach((button) => button.addEventListener("click", async () => {
  const code = byId(button.dataset.copies);
  let done = false;
  try {
    await navigator.clipboard.writeText(code.textContent);
    done = true;
  } catch {
    const range = document.createRange();
    range.selectNodeContents(code);
    const selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
    done = document.execCommand("copy");
  }
  byId("copied").textContent = done ? "Copied." : "Select it and copy it by hand.";
}));
return { put };
})();
