"use strict";
// An episode as lanes, one a role, in turn order; beside the reply that went on stand its siblings.
(() => {
  const { html } = petting;
  const { useEffect, useState, useMemo } = preactHooks;
  const LEVELS = ["process", "agent", "team"];

  function Failure({ failure }) {
    return html`<p class="failure"><b>failed</b> (${failure.owner}): ${petting.visible(failure.failed)}</p>`;
  }

  function Paid({ value }) {
    if (value === null || value === undefined) return html`<span class="faint">–</span>`;
    if (typeof value === "object") return html`<span class="bad-text" title=${value.failed}>failed</span>`;
    return html`<span class=${value < 0 ? "minus" : value > 0 ? "plus" : ""}>${petting.number(value, true)}</span>`;
  }

  function Advantage({ value }) {
    if (value === null) return html`<span class="badge none" title="nobody learns from this reply">not learnt from</span>`;
    const kind = value > 0 ? "up" : value < 0 ? "down" : "flat";
    return html`<span class="badge ${kind}" title="advantage: more or less likely after this step">A ${petting.number(value, true)}</span>`;
  }

  function Compared({ group, episode, number }) {
    if (!group) return null;
    const mine = (place) => place[0] === episode.id && place[1] === number;
    return html`<details class="compared"><summary>compared with ${group.size - 1} ${group.size === 2 ? "other" : "others"},
      mean ${petting.number(group.mean, true)}</summary>
      <table><thead><tr><th scope="col">paid</th><th scope="col">A</th><th scope="col">who</th><th scope="col">said</th></tr></thead>
      <tbody>${group.members.map((member) => html`<tr class=${member.turns.some(mine) ? "own" : ""}>
        <td class="num">${petting.number(member.reward, true)}</td><td class="num">${petting.number(member.advantage, true)}</td>
        <td>${who(member, episode)}</td><td class="said">${petting.visible(member.text)}</td></tr>`)}</tbody></table>
      ${group.size > group.members.length && html`<p class="faint">and ${(group.size - group.members.length).toLocaleString("en")} more</p>`}
      ${!episode.whole && html`<p class="faint">Of the step, only this task's episodes were read.</p>`}</details>`;
  }

  function Judged({ submission }) {
    const said = submission.verdict;
    const failed = said !== null && typeof said === "object";
    return html`<details class="judged"><summary>judge${submission.role ? ` on ${submission.role}` : ""}: ${said === null ? "not asked"
      : failed ? html`<span class="bad-text">failed</span>` : html`<b>${petting.number(said)}</b> of 1`}</summary>
      ${failed && html`<${Failure} failure=${said} />`}
      <dl><dt>was asked</dt><dd><${petting.Words} text=${submission.question} /></dd>
        ${submission.criteria && html`<dt>looks at</dt><dd><${petting.Words} text=${submission.criteria} /></dd>`}
        <dt>was shown</dt><dd><${petting.Words} text=${submission.answer} /></dd></dl></details>`;
  }

  function who(member, episode) {
    if (!member.turns.length) return "the play without this role";
    const [id, number] = member.turns[0];
    if (id !== episode.id) return `${id}`;
    const turn = episode.turns[number];
    return turn.branch === null ? `${turn.role}, turn ${number + 1}` : `sibling ${turn.branch + 1}`;
  }

  function Reply({ episode, number, view, most }) {
    const turn = episode.turns[number];
    const siblings = turn.branch !== null;
    const kind = turn.chosen ? "chosen" : "aside";
    return html`<article class="reply ${kind}" id="turn-${episode.run}-${episode.n}-${number}">
      <header>${siblings && html`<span class="branch">${turn.chosen ? "▶ " : ""}sibling ${turn.branch + 1}${turn.chosen ? ", went on" : ""}</span>`}
        <span class="faint">${turn.policy}${turn.version === null ? "" : ` v${turn.version}`} · ${turn.tokens} tok${turn.finish === "length" ? " · cut" : ""}</span>
        <span class="grow"></span><${Advantage} value=${turn.advantage} /></header>
      <${petting.Tokens} turn=${turn} shade=${view.shade} most=${most} />
      ${turn.failure && html`<${Failure} failure=${turn.failure} />`}
      ${turn.judged.map((name) => html`<${Judged} submission=${episode.submissions[name]} />`)}
      <footer><span class="levels">${LEVELS.map((level) => html`<span>${level} <${Paid} value=${turn.rewards[level]} /></span>`)}
        <span class="sum">in all <${Paid} value=${turn.reward} /></span></span>
        <${Compared} group=${turn.group} episode=${episode} number=${number} /></footer></article>`;
  }

  function Prompt({ messages, tokens, images, view }) {
    const board = view.boards ? petting.board_of(messages) : null;
    const seen = messages.flatMap((message) => message.images);
    return html`${board && html`<${petting.Board} ...${board} />`}
      ${seen.length > 0 && html`<div class="pictures">${seen.map((digest) => html`<${petting.Picture} digest=${digest} ...${images[digest]} />`)}</div>`}
      <details class="prompt"><summary>prompt, ${tokens} tokens</summary>
        ${messages.map((message) => html`<${petting.Message} ...${message} boards=${view.boards} />`)}</details>`;
  }

  function Cell({ episode, numbers, view, most }) {
    const turns = episode.turns;
    const order = [...numbers].sort((a, b) => turns[b].chosen - turns[a].chosen || a - b);
    const shown = view.trunk ? order.filter((number) => turns[number].chosen || turns[number].failure) : order;
    const [open, setOpen] = useState(false);
    const few = open ? shown : shown.slice(0, 6);
    const first = turns[numbers[0]];
    return html`<${Prompt} messages=${episode.prompts[first.prompt]} tokens=${first.prompt_tokens} images=${episode.images} view=${view} />
      ${few.map((number) => html`<${Reply} key=${number} episode=${episode} number=${number} view=${view} most=${most} />`)}
      ${few.length < shown.length && html`<button class="small" onClick=${() => setOpen(true)}>${shown.length - few.length} more siblings</button>`}`;
  }

  function Lanes({ episode, view, most }) {
    const roles = episode.roles;
    return html`<div class="lanes" style=${{ "--roles": roles.length }}>
      <div class="lane-heads"><span></span>${roles.map((role) => html`<h3>${role}</h3>`)}</div>
      ${episode.decisions.map((row, at) => html`<section class="decision" aria-label="decision ${at + 1}">
        <span class="count" title="decision ${at + 1}">${at + 1}</span>
        ${roles.map((role) => {
          const numbers = row.turns.filter((number) => episode.turns[number].role === role);
          return html`<div class="lane ${numbers.length ? "" : "silent"}">${numbers.length > 0 && html`<h4 class="lane-name">${role}</h4>
            <${Cell} episode=${episode} numbers=${numbers} view=${view} most=${most} />`}</div>`;
        })}
        ${Object.keys(row.metrics).length > 0 && html`<p class="measured faint">${Object.entries(row.metrics).map(([name, value]) => `${name} ${petting.number(value)}`).join(" · ")}</p>`}
      </section>`)}</div>`;
  }

  // The tree at a glance: a column for each decision, a dot for each sibling, a line where it went on.
  function Tree({ episode, view }) {
    const columns = episode.decisions.map((row) => row.turns);
    if (!columns.some((numbers) => numbers.length > 1)) return null;
    const most = petting.largest(episode, "advantage") || 1;
    const tall = Math.max(...columns.map((numbers) => numbers.length));
    const [dx, dy] = [64, 15];
    const [width, height] = [columns.length * dx + 40, tall * dy + 30];
    const y = (column, at) => height / 2 + 6 + (at - (columns[column].length - 1) / 2) * dy;
    const [ways, marks] = [[], []];
    let from = [14, height / 2 + 6];
    columns.forEach((numbers, column) => {
      const x = 40 + column * dx;
      let next = from;
      numbers.forEach((number, at) => {
        const turn = episode.turns[number];
        const to = [x, y(column, at)];
        ways.push(html`<path class=${turn.chosen ? "went" : "stayed"} d="M${from} C${[(from[0] + x) / 2, from[1]]} ${[(from[0] + x) / 2, to[1]]} ${to}" />`);
        if (turn.chosen) next = to;
      });
      numbers.forEach((number, at) => {
        const turn = episode.turns[number];
        const value = turn.advantage;
        const kind = turn.failure ? "failed" : value === null ? "none" : value > 0 ? "up" : value < 0 ? "down" : "flat";
        const size = value === null ? 3 : 3 + 3.5 * Math.min(1, Math.abs(value) / most);
        const go = () => document.getElementById(`turn-${episode.run}-${episode.n}-${number}`)?.scrollIntoView({ block: "center" });
        marks.push(html`<circle class="dot ${kind} ${turn.chosen ? "went" : ""}" cx=${x} cy=${y(column, at)} r=${size} onClick=${go}>
          <title>${turn.role}: ${turn.text.slice(0, 60)}</title></circle>`);
      });
      const roles = [...new Set(numbers.map((number) => episode.turns[number].role))];
      marks.push(html`<text x=${x} y="10" text-anchor="middle">${roles.map((role) => role.slice(0, 9)).join("+")}</text>`);
      from = next;
    });
    return html`<div class="tree scroll" tabindex="0" role="region" aria-label="the tree of siblings"><svg aria-hidden="true" width=${width} height=${height} viewBox="0 0 ${width} ${height}">
      <circle class="dot root" cx="14" cy=${height / 2 + 6} r="4" />${ways}${marks}</svg></div>`;
  }

  function Beside({ episode, view, most }) {
    if (view.trunk || !episode.branches.length) return null;
    return html`<details class="more"><summary>${episode.branches.length} plays beside the trunk</summary>
      ${episode.branches.map((branch) => html`<p class="note">${branch.role ? `without ${branch.role}, ` : ""}${branch.steps} steps${branch.turns.length ? "" : "; what was said in it was not kept"}</p>
        ${branch.turns.map((number) => html`<${Reply} episode=${episode} number=${number} view=${view} most=${most} />`)}`)}</details>`;
  }

  function Episode({ run, n, view, title }) {
    const [episode, setEpisode] = useState(null);
    const [error, setError] = useState("");
    useEffect(() => {
      let here = true;
      setError("");
      petting.source.episode(run, n).then((found) => here && setEpisode(found), (problem) => here && setError(problem.message));
      return () => { here = false; };
    }, [run, n]);
    const most = useMemo(() => (episode ? petting.largest(episode, view.shade) : 0), [episode, view.shade]);
    if (error) return html`<p class="alarm" role="alert">${error}</p>`;
    if (!episode) return html`<p class="loading">Loading…</p>`;
    const row = episode.row;
    const known = episode.turns.some((turn) => petting.SHADES[view.shade].values(turn));
    return html`<div class="episode">
      <div class="bar head"><h2>${petting.visible(episode.id)}</h2><${petting.Outcome} outcomes=${episode.success} />
        <span class="faint">${title ? `${title} · ` : ""}${episode.env}${row.step ? ` · step ${row.step}` : ""} · ${row.kind} · ${row.replies} replies · ${petting.number(row.tokens)} tokens
          ${Object.entries(row.rewards).map(([role, x]) => ` · ${role} paid ${petting.number(x, true)}`)}</span></div>
      ${episode.failure && html`<${Failure} failure=${episode.failure} />`}
      ${episode.limit && html`<p class="note"><b>cut at a limit</b>: ${petting.visible(episode.limit)}</p>`}
      ${Object.keys(episode.answers).length > 0 && html`<p class="note">Answers: ${Object.entries(episode.answers).map(([role, x]) => html`<b>${role}</b> ${petting.visible(x)} `)}</p>`}
      <${Tree} episode=${episode} view=${view} />
      ${view.shade !== "none" && html`<p class="scale faint">Shaded by ${petting.SHADES[view.shade].name};
        ${most ? html` the darkest is ${petting.number(most)}${view.shade === "advantage" ? ", blue is more likely, orange less" : ""}.` : known ? " all of it is 0." : " nothing of it is known here."}</p>`}
      <${Lanes} episode=${episode} view=${view} most=${most} />
      <${Beside} episode=${episode} view=${view} most=${most} />
      ${Object.keys(episode.task.data).length > 0 && html`<details class="more"><summary>Data of task ${petting.visible(episode.task.id)}</summary>
        <${petting.Words} text=${JSON.stringify(episode.task.data, null, 1)} /></details>`}
      </div>`;
  }

  function ViewBar({ view, change, children }) {
    return html`<div class="bar">${children}
      <label>Shade tokens by <select id="shade" value=${view.shade} onChange=${(e) => change({ shade: e.target.value })}>
        ${Object.entries(petting.SHADES).map(([key, shade]) => html`<option value=${key}>${shade.name}</option>`)}</select></label>
      <label><input type="checkbox" checked=${view.trunk} onChange=${(e) => change({ trunk: e.target.checked })} /> only what went on</label>
      <label><input type="checkbox" checked=${view.boards} onChange=${(e) => change({ boards: e.target.checked })} /> draw boards</label></div>`;
  }

  function EpisodePage({ run, n, view, change, marks, mark }) {
    const [around, setAround] = useState({});
    useEffect(() => { petting.source.episode(run, n).then(setAround, () => setAround({})); }, [run, n]);
    const link = (to) => `#/episode?run=${run}&n=${to}`;
    const marked = marks.some((one) => one.run === run && one.n === n);
    return html`<${ViewBar} view=${view} change=${change}>
        <a class="button" href="#/episodes?run=${run}">← All episodes</a>
        <a class="button" id="before" aria-disabled=${!around.before} href=${around.before ? link(around.before) : null}>Before [</a>
        <a class="button" id="after" aria-disabled=${!around.after} href=${around.after ? link(around.after) : null}>After ]</a>
        <button onClick=${() => mark(run, n)} aria-pressed=${marked}>${marked ? "Marked" : "Mark"} to compare</button>
        ${marks.length === 2 && html`<a class="button" href=${petting.compare_link(marks)}>Compare</a>`}<//>
      <${Episode} run=${run} n=${n} view=${view} />`;
  }

  function ComparePage({ pair, view, change, runs }) {
    return html`<${ViewBar} view=${view} change=${change}><a class="button" href="#/episodes">← All episodes</a><//>
      <div class="pair">${pair.map(([run, n]) => html`<${Episode} key="${run}.${n}" run=${run} n=${n} view=${view} title=${runs[run] && runs[run].name} />`)}</div>`;
  }

  Object.assign(petting, { EpisodePage, ComparePage });
})();
