"use strict";
// Draw the team that a designer proposed: a box per executor, an arrow from each to those that hear it.
(() => {
  const { html } = petting;
  const [WIDTH, HEIGHT, GAP_X, GAP_Y, EDGE] = [150, 54, 56, 14, 8];

  // A column per distance from the executors that hear no other.
  function place(executors) {
    const found = new Map(), rows = [];
    for (const one of executors) { // each comes after those it hears
      const column = Math.max(-1, ...one.hears.map((role) => found.get(role).column)) + 1;
      rows[column] = (rows[column] || 0) + 1;
      found.set(one.role, { column, x: EDGE + column * (WIDTH + GAP_X), y: EDGE + (rows[column] - 1) * (HEIGHT + GAP_Y) });
    }
    return { found, columns: rows.length, rows: Math.max(...rows) };
  }

  const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
  const reads = (one) => (one.reads.length ? `reads ${one.reads.join(", ")}` : "reads no part");

  function describe(one, team) {
    const parts = [reads(one), one.hears.length ? `hears ${one.hears.join(", ")}` : "", `prompt: ${one.prompt}`,
      one.tools.length ? `tools: ${one.tools.join(", ")}` : "", one.role === team.answers ? "answers" : ""];
    return `${one.role} ${parts.filter(Boolean).join("; ")}`;
  }

  function Team({ team }) {
    const { found, columns, rows } = place(team.executors);
    const width = 2 * EDGE + columns * (WIDTH + GAP_X) - GAP_X + 10;
    const height = 2 * EDGE + rows * (HEIGHT + GAP_Y) - GAP_Y;
    const label = `team of ${team.executors.length}, ${team.rounds} ${team.rounds === 1 ? "round" : "rounds"}: ${team.executors.map((one) => describe(one, team)).join(". ")}`;
    const edges = team.executors.flatMap((one) => one.hears.map((role) => {
      const [from, to] = [found.get(role), found.get(one.role)];
      const [x1, y1, x2, y2] = [from.x + WIDTH, from.y + HEIGHT / 2, to.x - 7, to.y + HEIGHT / 2];
      const middle = (x1 + x2) / 2;
      return html`<path d="M${x1},${y1} C${middle},${y1} ${middle},${y2} ${x2},${y2}" /><path class="tip" d="M${x2},${y2 - 4} l7,4 l-7,4 z" />`;
    }));
    const boxes = team.executors.map((one) => {
      const { x, y } = found.get(one.role);
      const detail = `${one.prompt}${one.tools.length ? ` + ${one.tools.join(", ")}` : ""}`;
      return html`<g class=${one.role === team.answers ? "answers" : ""}><title>${petting.visible(describe(one, team))}</title>
        <rect x=${x} y=${y} width=${WIDTH} height=${HEIGHT} rx="7" />
        <text class="name" x=${x + 9} y=${y + 17}>${one.role}${one.role === team.answers ? " · answers" : ""}</text>
        <text x=${x + 9} y=${y + 32}>${reads(one)}</text><text x=${x + 9} y=${y + 46}>${short(detail, 24)}</text></g>`;
    });
    return html`<figure class="team"><figcaption class="faint">Proposed team${team.rounds === 1 ? "" : `, ${team.rounds} rounds`}</figcaption>
      <div class="scroll" tabindex="0" role="img" aria-label=${label}><svg aria-hidden="true" width=${width} height=${height} viewBox="0 0 ${width} ${height}">${edges}${boxes}</svg></div></figure>`;
  }

  Object.assign(petting, { Team });
})();
