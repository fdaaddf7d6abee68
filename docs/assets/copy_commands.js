// Copies only the commands of a console block: no prompts, and nothing that the commands print.
// The theme's own listener is on the body and prefers `data-clipboard-text`, so this one runs first and sets it.
document.addEventListener(
  "click",
  (event) => {
    const button = event.target.closest("[data-clipboard-target]");
    const block = button && button.closest(".language-console");
    if (!block) return;
    const commands = [];
    let continued = false;
    for (const line of block.querySelector("code").innerText.split("\n")) {
      if (line.startsWith("$ ") || continued) {
        commands.push(continued ? line : line.slice(2));
        continued = line.endsWith("\\");
      }
    }
    button.setAttribute("data-clipboard-text", commands.join("\n"));
  },
  true,
);
