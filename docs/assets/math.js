// Arithmatex leaves formulas as \( … \) and \[ … \]; KaTeX, which is shipped beside this file, sets them.
document$.subscribe(({ body }) => {
  renderMathInElement(body, {
    delimiters: [
      { left: "\\(", right: "\\)", display: false },
      { left: "\\[", right: "\\]", display: true },
    ],
    throwOnError: false,
  });
});
