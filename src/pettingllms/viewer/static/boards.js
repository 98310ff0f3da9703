"use strict";
// Draw boards and grids found in a text: three or more lines with the same number of cells.
(() => {
  const { html } = petting;
  const CELL = /^[#.\-_@$*+A-Z0-9~^vo·]$/;
  const LINE = /^[#.\-_@$*+A-Z0-9~·]{3,24}$/;
  const KINDS = { "#": "wall", ".": "free", "-": "free", "_": "free", "·": "free",
    S: "start", "@": "start", G: "goal", "$": "box", "*": "done", "+": "start", X: "one", O: "two" };

  function parse_cells(line) {
    const parts = line.replace(/\|/g, " ").trim().split(/\s+/);
    if (parts.length >= 3 && parts.length <= 24 && parts.every((part) => CELL.test(part))) return parts;
    return LINE.test(line) && /[#.\-_@0-9·]/.test(line) ? [...line] : null;
  }

  // Split a text into parts: { text } or { rows, text }.
  function split(text) {
    const parts = [];
    let plain = [], block = [];
    const close = () => {
      if (block.length >= 3) {
        if (plain.length) parts.push({ text: plain.join("\n") });
        plain = [];
        parts.push({ rows: block.map((one) => one.row), text: block.map((one) => one.line).join("\n") });
      } else plain.push(...block.map((one) => one.line));
      block = [];
    };
    for (const line of text.split("\n")) {
      const row = parse_cells(line);
      if (!row || (block.length && block[0].row.length !== row.length)) close();
      if (row) block.push({ row, line });
      else plain.push(line);
    }
    close();
    if (plain.some((line) => line.trim())) parts.push({ text: plain.join("\n") });
    return parts;
  }

  function Board({ rows, text }) {
    return html`<div class="board" role="img" aria-label="board: ${text.replace(/\n/g, " / ")}"
      style=${{ gridTemplateColumns: `repeat(${rows[0].length}, 1fr)`, maxWidth: `${rows[0].length * 1.9}rem` }}>
      ${rows.flat().map((cell) => html`<span class="cell ${KINDS[cell] || "symbol"}" aria-hidden="true">
        ${KINDS[cell] === "wall" || KINDS[cell] === "free" ? "" : cell}</span>`)}</div>`;
  }

  const find_board = (messages) => {
    const last = messages[messages.length - 1];
    return last ? split(last.content).find((part) => part.rows) : null;
  };

  // An image in a role's prompt. The prompt may not describe it, so the alt text names only its hash.
  function Picture({ digest, data, missing }) {
    if (missing) return html`<p class="faint">image ${digest.slice(0, 12)}: ${missing}</p>`;
    return html`<img class="picture" src=${data} alt="image in the role's prompt, ${digest.slice(0, 12)}" title=${digest} />`;
  }

  function Message({ speaker, content, images, boards }) {
    const parts = boards ? split(content) : [{ text: content }];
    return html`<div class="message"><b class="speaker">${speaker}${images.length ? ` · ${images.length} ${images.length === 1 ? "image" : "images"}` : ""}</b>
      ${parts.map((part) => (part.rows ? html`<${Board} ...${part} />` : html`<${petting.PlainText} text=${part.text} />`))}</div>`;
  }

  Object.assign(petting, { Board, Message, Picture, find_board });
})();
