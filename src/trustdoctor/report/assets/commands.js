/* Commands: words that stay whole, and buttons that copy them. */
const commands = (() => {
"use strict";
const { byId } = dom;
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
  let copied = false;
  try {
    await navigator.clipboard.writeText(code.textContent);
    copied = true;
  } catch {  /* not allowed, or no secure context */
    const range = document.createRange();
    range.selectNodeContents(code);
    const selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
    copied = document.execCommand("copy");
  }
  byId("copied").textContent = copied ? "Copied." : "Select it and copy it by hand.";
}));
return { put };
})();
