"""The page that a report is set in. Only the type, the colours and the measure are decided here."""

import string

PAGE = string.Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>$title</title>
<style>
:root {
  --ink: #1f2328; --muted: #6a737d; --line: #d9dde2; --paper: #ffffff; --page: #f6f7f9; --accent: #2f7fd1;
  --sans: system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif;
  --serif: "Iowan Old Style", "Palatino Linotype", Palatino, "Source Serif 4", Georgia, serif;
  --mono: ui-monospace, "SF Mono", Menlo, Consolas, monospace;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #e6e9ed; --muted: #9aa4af; --line: #343b44; --paper: #181c21; --page: #101317; --accent: #6db0f2;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink); font: 1.0625rem/1.6 var(--serif);
  -webkit-text-size-adjust: 100%; text-rendering: optimizeLegibility;
}
main { max-width: 62rem; margin: 0 auto; padding: clamp(1.5rem, 5vw, 4.5rem) clamp(1rem, 4vw, 2.5rem) 5rem; }
header { border-bottom: 1px solid var(--line); margin-bottom: 2.2rem; padding-bottom: 1.4rem; }
h1, h2, h3, h4 { font-family: var(--sans); line-height: 1.2; letter-spacing: -0.015em; text-wrap: balance; }
h1 { font-size: clamp(1.8rem, 1.2rem + 2.6vw, 2.8rem); font-weight: 700; margin: 0; }
h2 { font-size: 1.45rem; font-weight: 650; margin: 3rem 0 0.8rem; }
h3 { font-size: 1.12rem; font-weight: 650; margin: 2.2rem 0 0.6rem; }
h4 { font-size: 1rem; margin: 1.6rem 0 0.4rem; color: var(--muted); }
p, ul { max-width: 42rem; margin: 0 0 1rem; hyphens: auto; text-wrap: pretty; }
.lead { font-size: 1.2rem; color: var(--muted); margin: 0.7rem 0 0; }
li { margin-bottom: 0.3rem; }
a { color: var(--accent); text-underline-offset: 0.15em; }
code { font: 0.86em var(--mono); background: var(--paper); border: 1px solid var(--line); border-radius: 4px;
  padding: 0.08em 0.32em; }
figure, .table {
  background: var(--paper); border: 1px solid var(--line); border-radius: 10px; margin: 1.8rem 0;
  padding: clamp(0.8rem, 2.5vw, 1.6rem); overflow-x: auto;
}
figure svg, figure img { display: block; width: 100%; max-width: var(--width); height: auto; margin: 0 auto; }
figure img { background: #fff; border-radius: 4px; }
figcaption, caption { font: 0.9rem/1.5 var(--sans); color: var(--muted); text-align: left; }
figcaption { border-top: 1px solid var(--line); margin-top: 1rem; padding-top: 0.8rem; }
caption { caption-side: bottom; padding-top: 0.9rem; }
table { width: 100%; border-collapse: collapse; font: 0.93rem/1.45 var(--sans); }
td { font-variant-numeric: tabular-nums; }
th { font-weight: 600; text-align: left; color: var(--muted); border-bottom: 1.5px solid var(--ink); }
th, td { padding: 0.45rem 0.9rem 0.45rem 0; vertical-align: baseline; }
th:last-child, td:last-child { padding-right: 0; }
td { border-bottom: 1px solid var(--line); }
tbody tr:last-child td { border-bottom: 0; }
td:first-child { min-width: 8rem; }
.number { text-align: right; white-space: nowrap; }
.best td { font-weight: 650; }
@media print { body { background: none; } figure, .table { break-inside: avoid; } }
</style>
</head>
<body>
<main>
<header>$heading</header>
$body
</main>
</body>
</html>
""")
