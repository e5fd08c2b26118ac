// What the page shows without scripts is the mean over all target tokens.
const maps = JSON.parse(document.getElementById("weights").textContent);
const buttons = [...document.querySelectorAll("button")];
const panels = [...document.querySelectorAll(".source")];
const said = document.getElementById("said");
let pinned = -1;
function show(row) {
  panels.forEach((panel, m) => {
    const weights = maps[m][row < 0 ? maps[m].length - 1 : row];
    const most = Math.max(...weights, 1e-30);
    [...panel.children].forEach((token, n) => {
      token.style.setProperty("--s", weights[n] / most);
      token.title = weights[n].toPrecision(3);
      token.className = weights[n] === most ? "most" : "";
    });
  });
  said.textContent = row < 0 ? said.dataset.all : buttons[row].textContent + " reads:";
}
function pin(row) {
  pinned = pinned === row ? -1 : row;
  buttons.forEach((button, n) => button.setAttribute("aria-pressed", n === pinned));
  show(pinned);
}
buttons.forEach((button, row) => {
  button.addEventListener("mouseenter", () => show(row));
  button.addEventListener("mouseleave", () => show(pinned));
  button.addEventListener("focus", () => show(row));
  button.addEventListener("blur", () => show(pinned));
  button.addEventListener("click", () => pin(row));
  button.addEventListener("keydown", event => {
    const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
    if (step) {
      event.preventDefault();
      buttons[(row + step + buttons.length) % buttons.length].focus();
    } else if (event.key === "Escape") {
      pin(pinned);
    }
  });
});
show(-1);
