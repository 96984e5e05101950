// Paper has no folds: everything is opened before the page is printed, and closed again after.

export function openForPrint() {
  let opened = [];
  addEventListener("beforeprint", () => {
    for (const part of document.querySelectorAll(".cut, .step-list")) unfold(part);
    opened = [];
    // What is unfolded may hold more folds.
    for (let folds = closedFolds(); folds.length; folds = closedFolds()) {
      for (const details of folds) {
        unfold(details);
        details.open = true;
        opened.push(details);
      }
    }
    for (const part of document.querySelectorAll(".cut")) unfold(part);
  });
  addEventListener("afterprint", () => {
    for (const details of opened) details.open = false;
  });
}

function closedFolds() {
  return [...document.querySelectorAll("main details:not([open])")];
}

/** Builds what an element builds only when it is needed. */
function unfold(element) {
  element.dispatchEvent(new Event("unfold"));
}
