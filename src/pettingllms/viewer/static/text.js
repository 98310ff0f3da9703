"use strict";
// Text written by models, shown as plain text only. Invisible and bidirectional control characters are spelled out.
(() => {
  const { html } = petting;
  const { useState } = preactHooks;
  const MAX_CHARACTERS = 20000;
  const MAX_TOKENS = 4000;
  const HIDDEN = new RegExp(
    "[\\u0000-\\u0008\\u000B-\\u001F\\u007F-\\u009F\\u00AD\\u061C\\u115F\\u1160\\u180E" +
    "\\u200B-\\u200F\\u2028-\\u202E\\u2060-\\u206F\\u3164\\uFEFF\\uFFA0\\uFFF9-\\uFFFC]" +
    "|[\\uD800-\\uDBFF](?![\\uDC00-\\uDFFF])|(?<![\\uD800-\\uDBFF])[\\uDC00-\\uDFFF]", "g");

  function visible(text) {
    const parts = [];
    let from = 0;
    for (const found of text.matchAll(HIDDEN)) {
      const code = found[0].charCodeAt(0).toString(16).toUpperCase().padStart(4, "0");
      parts.push(text.slice(from, found.index));
      parts.push(html`<span class="hidden-character" title="invisible character">U+${code}</span>`);
      from = found.index + found[0].length;
    }
    parts.push(text.slice(from));
    return parts;
  }

  function PlainText({ text, children }) {
    const [expanded, setExpanded] = useState(false);
    if (!text) return html`<p class="plain-text empty">empty reply</p>`;
    const cut = !expanded && text.length > MAX_CHARACTERS;
    return html`
      <div class="plain-text" dir="auto">${children && !cut ? children : visible(cut ? text.slice(0, MAX_CHARACTERS) : text)}</div>
      ${cut && html`<button class="small" onClick=${() => setExpanded(true)}>
        show all ${text.length.toLocaleString("en")} characters</button>`}`;
  }

  // Quantities that tokens can be shaded by. The largest magnitude in the episode is the darkest.
  const SHADES = {
    none: { name: "nothing", values: () => null },
    advantage: {
      name: "advantage",
      values: (turn) => turn.advantages
        || (turn.advantage === null ? null : Array(turn.tokens).fill(turn.advantage)),
    },
    mismatch: { name: "train-inference mismatch", values: (turn) => turn.mismatch },
    value: { name: "critic value", values: (turn) => turn.values && turn.values.slice(1) },
    surprisal: {
      name: "surprisal (−log p)",
      values: (turn) => turn.logprobs && turn.logprobs.map((x) => (x === null ? null : -x)),
    },
  };

  function largest(episode, shade) {
    let max_value = 0;
    for (const turn of episode.turns) {
      for (const value of SHADES[shade].values(turn) || []) max_value = Math.max(max_value, Math.abs(value || 0));
    }
    return max_value;
  }

  function paint(shade, value, max_value) {
    if (value === null || !max_value) return null;
    const strength = (0.55 * Math.min(1, Math.abs(value) / max_value)).toFixed(3);
    if (shade === "mismatch") return `rgba(160, 60, 170, ${strength})`;
    if (shade === "surprisal") return `rgba(230, 159, 0, ${strength})`;
    return value > 0 ? `rgba(0, 114, 178, ${strength})` : `rgba(213, 94, 0, ${strength})`;
  }

  function Tokens({ turn, shade, max_value }) {
    const values = SHADES[shade].values(turn);
    const plain = html`<${PlainText} text=${turn.text} />`;
    if (!values || !turn.text) return plain;
    if (!turn.ends || turn.ends.length !== values.length || values.length > MAX_TOKENS) {
      const mean = values.reduce((sum, x) => sum + (x || 0), 0) / Math.max(1, values.length);
      return html`<div class="shaded" style=${{ background: paint(shade, mean, max_value) }}>${plain}</div>`;
    }
    let from = 0;
    const parts = turn.ends.map((end, at) => {
      const piece = turn.text.slice(from, end);
      from = end;
      const label = values[at] === null ? "not recorded" : petting.number(values[at], true);
      return html`<span class=${piece ? "token" : "token end"} style=${{ background: paint(shade, values[at], max_value) }}
        title="${SHADES[shade].name}: ${label}">${piece ? visible(piece) : "▪"}</span>`;
    });
    if (from < turn.text.length) parts.push(visible(turn.text.slice(from)));
    return html`<${PlainText} text=${turn.text}>${parts}<//>`;
  }

  function number(value, signed = false) {
    if (value === null || value === undefined) return "–";
    if (typeof value !== "number") return String(value);
    const size = Math.abs(value);
    const text = Number.isInteger(value) ? size.toLocaleString("en")
      : size !== 0 && (size < 0.001 || size >= 1e6) ? size.toExponential(1)
        : size >= 100 ? size.toFixed(0) : size.toFixed(size < 1 ? 3 : 2);
    return (value < 0 ? "−" : signed && value > 0 ? "+" : "") + text;
  }

  Object.assign(petting, { PlainText, Tokens, SHADES, largest, number, visible });
})();
