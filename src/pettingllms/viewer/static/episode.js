"use strict";
// One episode: a lane per role, a row per decision. Siblings appear below the reply on the main branch.
(() => {
  const { html } = petting;
  const { useEffect, useState, useMemo } = preactHooks;
  const LEVELS = ["process", "agent", "team"];

  function Failure({ failure }) {
    return html`<p class="failure"><b>failed</b> (${failure.owner}): ${petting.visible(failure.failed)}</p>`;
  }

  function Reward({ value }) {
    if (value === null || value === undefined) return html`<span class="faint">–</span>`;
    if (typeof value === "object") return html`<span class="bad-text" title=${value.failed}>failed</span>`;
    return html`<span class=${value < 0 ? "minus" : value > 0 ? "plus" : ""}>${petting.number(value, true)}</span>`;
  }

  function Advantage({ value }) {
    if (value === null) return html`<span class="badge none" title="this reply is excluded from training">not trained on</span>`;
    const kind = value > 0 ? "up" : value < 0 ? "down" : "flat";
    return html`<span class="badge ${kind}" title="advantage: the update makes replies with A > 0 more likely, with A < 0 less likely">A ${petting.number(value, true)}</span>`;
  }

  function ComparisonGroup({ group, episode, number }) {
    if (!group) return null;
    const is_this_turn = (place) => place[0] === episode.id && place[1] === number;
    return html`<details class="compared"><summary>group of ${group.size}, mean reward ${petting.number(group.mean, true)}</summary>
      <table><thead><tr><th scope="col">reward</th><th scope="col">advantage</th><th scope="col">member</th><th scope="col">reply</th></tr></thead>
      <tbody>${group.members.map((member) => html`<tr class=${member.turns.some(is_this_turn) ? "own" : ""}>
        <td class="num">${petting.number(member.reward, true)}</td><td class="num">${petting.number(member.advantage, true)}</td>
        <td>${member_name(member, episode)}</td><td class="reply-start">${petting.visible(member.text)}</td></tr>`)}</tbody></table>
      ${group.size > group.members.length && html`<p class="faint">and ${(group.size - group.members.length).toLocaleString("en")} more</p>`}
      ${!episode.whole && html`<p class="faint">The step is large: only the episodes of this task were compared here.</p>`}</details>`;
  }

  function Verdict({ submission }) {
    const { verdict } = submission;
    const failed = verdict !== null && typeof verdict === "object";
    return html`<details class="judged"><summary>judge verdict${submission.role ? ` for ${submission.role}` : ""}: ${verdict === null ? "none"
      : failed ? html`<span class="bad-text">failed</span>` : html`<b>${petting.number(verdict)}</b> of 1`}</summary>
      ${failed && html`<${Failure} failure=${verdict} />`}
      <dl><dt>question</dt><dd><${petting.PlainText} text=${submission.question} /></dd>
        ${submission.criteria && html`<dt>criteria</dt><dd><${petting.PlainText} text=${submission.criteria} /></dd>`}
        <dt>submission</dt><dd><${petting.PlainText} text=${submission.answer} /></dd></dl></details>`;
  }

  function member_name(member, episode) {
    if (!member.turns.length) return "episode without this role";
    const [id, number] = member.turns[0];
    if (id !== episode.id) return `${id}`;
    const turn = episode.turns[number];
    return turn.branch === null ? `${turn.role}, turn ${number + 1}` : `sibling ${turn.branch + 1}`;
  }

  function Reply({ episode, number, view, max_value }) {
    const turn = episode.turns[number];
    const siblings = turn.branch !== null;
    const kind = turn.on_main_branch ? "main" : "side";
    return html`<article class="reply ${kind}" id="turn-${episode.run}-${episode.n}-${number}">
      <header>${siblings && html`<span class="branch">${turn.on_main_branch ? "▶ " : ""}sibling ${turn.branch + 1}${turn.on_main_branch ? " · main branch" : ""}</span>`}
        <span class="faint">${turn.policy}${turn.version === null ? "" : ` v${turn.version}`}${turn.last_version === turn.version ? "" : `–${turn.last_version}`} · ${turn.tokens} tok${turn.finish === "length" ? " · truncated" : ""}</span>
        <span class="grow"></span><${Advantage} value=${turn.advantage} /></header>
      <${petting.Tokens} turn=${turn} shade=${view.shade} max_value=${max_value} />
      ${turn.failure && html`<${Failure} failure=${turn.failure} />`}
      ${turn.judged.map((name) => html`<${Verdict} submission=${episode.submissions[name]} />`)}
      <footer><span class="levels">${LEVELS.map((level) => html`<span>${level} <${Reward} value=${turn.rewards[level]} /></span>`)}
        <span class="sum">total <${Reward} value=${turn.reward} /></span></span>
        <${ComparisonGroup} group=${turn.group} episode=${episode} number=${number} /></footer></article>`;
  }

  function Prompt({ messages, tokens, images, view }) {
    const board = view.boards ? petting.find_board(messages) : null;
    const digests = messages.flatMap((message) => message.images);
    return html`${board && html`<${petting.Board} ...${board} />`}
      ${digests.length > 0 && html`<div class="pictures">${digests.map((digest) => html`<${petting.Picture} digest=${digest} ...${images[digest]} />`)}</div>`}
      <details class="prompt"><summary>prompt (${tokens} tokens)</summary>
        ${messages.map((message) => html`<${petting.Message} ...${message} boards=${view.boards} />`)}</details>`;
  }

  function Cell({ episode, numbers, view, max_value }) {
    const turns = episode.turns;
    const order = [...numbers].sort((a, b) => turns[b].on_main_branch - turns[a].on_main_branch || a - b);
    const shown = view.main_only ? order.filter((number) => turns[number].on_main_branch || turns[number].failure) : order;
    const [open, setOpen] = useState(false);
    const visible = open ? shown : shown.slice(0, 6);
    const first = turns[numbers[0]];
    return html`<${Prompt} messages=${episode.prompts[first.prompt]} tokens=${first.prompt_tokens} images=${episode.images} view=${view} />
      ${visible.map((number) => html`<${Reply} key=${number} episode=${episode} number=${number} view=${view} max_value=${max_value} />`)}
      ${visible.length < shown.length && html`<button class="small" onClick=${() => setOpen(true)}>${shown.length - visible.length} more siblings</button>`}`;
  }

  function Lanes({ episode, view, max_value }) {
    const roles = episode.roles;
    return html`<div class="lanes" style=${{ "--roles": roles.length }}>
      <div class="lane-heads"><span></span>${roles.map((role) => html`<h3>${role}</h3>`)}</div>
      ${episode.decisions.map((row, at) => html`<section class="decision" aria-label="decision ${at + 1}">
        <span class="count" title="decision ${at + 1}">${at + 1}</span>
        ${roles.map((role) => {
          const numbers = row.turns.filter((number) => episode.turns[number].role === role);
          return html`<div class="lane ${numbers.length ? "" : "empty-lane"}">${numbers.length > 0 && html`<h4 class="lane-name">${role}</h4>
            <${Cell} episode=${episode} numbers=${numbers} view=${view} max_value=${max_value} />`}</div>`;
        })}
        ${Object.keys(row.metrics).length > 0 && html`<p class="step-metrics faint">${Object.entries(row.metrics).map(([name, value]) => `${name} ${petting.number(value)}`).join(" · ")}</p>`}
      </section>`)}</div>`;
  }

  // Overview of the tree: one column per decision, one dot per sibling, a bold line along the main branch.
  function Tree({ episode, view }) {
    const columns = episode.decisions.map((row) => row.turns);
    if (!columns.some((numbers) => numbers.length > 1)) return null;
    const max_advantage = petting.largest(episode, "advantage") || 1;
    const max_siblings = Math.max(...columns.map((numbers) => numbers.length));
    const [dx, dy] = [116, 19];
    const [width, height] = [columns.length * dx + 60, max_siblings * dy + 30];
    const y = (column, at) => height / 2 + 6 + (at - (columns[column].length - 1) / 2) * dy;
    const [edges, dots] = [[], []];
    let from = [14, height / 2 + 6];
    columns.forEach((numbers, column) => {
      const x = 40 + column * dx;
      let next = from;
      numbers.forEach((number, at) => {
        const turn = episode.turns[number];
        const to = [x, y(column, at)];
        edges.push(html`<path class=${turn.on_main_branch ? "main" : "side"} d="M${from} C${[(from[0] + x) / 2, from[1]]} ${[(from[0] + x) / 2, to[1]]} ${to}" />`);
        if (turn.on_main_branch) next = [to[0] + (turn.advantage ? 42 : 0), to[1]];
      });
      numbers.forEach((number, at) => {
        const turn = episode.turns[number];
        const value = turn.advantage;
        const kind = turn.failure ? "failed" : value === null ? "none" : value > 0 ? "up" : value < 0 ? "down" : "flat";
        const size = value === null ? 3 : 3 + 3.5 * Math.min(1, Math.abs(value) / max_advantage);
        const scroll = () => document.getElementById(`turn-${episode.run}-${episode.n}-${number}`)?.scrollIntoView({ block: "center" });
        dots.push(html`<circle class="dot ${kind} ${turn.on_main_branch ? "main" : ""}" cx=${x} cy=${y(column, at)} r=${size} onClick=${scroll}>
          <title>${turn.role}, A ${petting.number(value, true)}: ${turn.text.slice(0, 60)}</title></circle>`);
        if (value) dots.push(html`<text class="advantage ${kind}" x=${x + 10} y=${y(column, at) + 3.5}>${petting.number(value, true)}</text>`);
      });
      const roles = [...new Set(numbers.map((number) => episode.turns[number].role))];
      dots.push(html`<text x=${x} y="10" text-anchor="middle">${roles.map((role) => role.slice(0, 13)).join("+")}</text>`);
      from = next;
    });
    return html`<div class="tree scroll" tabindex="0" role="region" aria-label="tree of sibling replies"><svg aria-hidden="true" width=${width} height=${height} viewBox="0 0 ${width} ${height}">
      <circle class="dot root" cx="14" cy=${height / 2 + 6} r="4" />${edges}${dots}</svg></div>`;
  }

  function SideBranches({ episode, view, max_value }) {
    if (view.main_only || !episode.branches.length) return null;
    return html`<details class="more"><summary>${episode.branches.length} side ${episode.branches.length === 1 ? "branch" : "branches"} with continuations</summary>
      ${episode.branches.map((branch) => html`<p class="note">${branch.role ? `without ${branch.role}, ` : ""}${branch.steps} steps${branch.turns.length ? "" : "; replies not recorded"}</p>
        ${branch.turns.map((number) => html`<${Reply} episode=${episode} number=${number} view=${view} max_value=${max_value} />`)}`)}</details>`;
  }

  function Episode({ run, n, view, title }) {
    const [episode, setEpisode] = useState(null);
    const [error, setError] = useState("");
    useEffect(() => {
      let mounted = true;
      setError("");
      petting.source.episode(run, n).then((found) => mounted && setEpisode(found), (problem) => mounted && setError(problem.message));
      return () => { mounted = false; };
    }, [run, n]);
    const max_value = useMemo(() => (episode ? petting.largest(episode, view.shade) : 0), [episode, view.shade]);
    if (error) return html`<p class="alarm" role="alert">${error}</p>`;
    if (!episode) return html`<p class="loading">Loading…</p>`;
    const row = episode.row;
    const recorded = episode.turns.some((turn) => petting.SHADES[view.shade].values(turn));
    return html`<div class="episode">
      <div class="bar head"><h2>${petting.visible(episode.id)}</h2><${petting.Outcome} outcomes=${episode.success} />
        <span class="faint">${title ? `${title} · ` : ""}${episode.env}${row.step ? ` · step ${row.step}` : ""} · ${row.kind} · ${row.replies} replies · ${petting.number(row.tokens)} tokens
          ${Object.entries(row.rewards).map(([role, x]) => ` · ${role} reward ${petting.number(x, true)}`)}</span></div>
      ${episode.failure && html`<${Failure} failure=${episode.failure} />`}
      ${episode.limit && html`<p class="note"><b>truncated at a limit</b>: ${petting.visible(episode.limit)}</p>`}
      ${Object.keys(episode.answers).length > 0 && html`<p class="note">Answers: ${Object.entries(episode.answers).map(([role, x]) => html`<b>${role}</b> ${petting.visible(x)} `)}</p>`}
      <${Tree} episode=${episode} view=${view} />
      ${episode.turns.filter((turn) => turn.team && turn.on_main_branch).map((turn) => html`<${petting.Team} team=${turn.team} />`)}
      ${view.shade !== "none" && html`<p class="scale faint">Token shading: ${petting.SHADES[view.shade].name}${max_value ? html`, darkest at ${petting.number(max_value)}${view.shade === "advantage" ? "; blue: more likely after the update, orange: less likely" : ""}.`
        : recorded ? ", all 0." : ", not recorded in this episode."}</p>`}
      <${Lanes} episode=${episode} view=${view} max_value=${max_value} />
      <${SideBranches} episode=${episode} view=${view} max_value=${max_value} />
      ${Object.keys(episode.task.data).length > 0 && html`<details class="more"><summary>Task data: ${petting.visible(episode.task.id)}</summary>
        <${petting.PlainText} text=${JSON.stringify(episode.task.data, null, 1)} /></details>`}
      </div>`;
  }

  function ViewBar({ view, change, children }) {
    return html`<div class="bar">${children}
      <label>Shade tokens by <select id="shade" value=${view.shade} onChange=${(e) => change({ shade: e.target.value })}>
        ${Object.entries(petting.SHADES).map(([key, shade]) => html`<option value=${key}>${shade.name}</option>`)}</select></label>
      <label><input type="checkbox" checked=${view.main_only} onChange=${(e) => change({ main_only: e.target.checked })} /> main branch only</label>
      <label><input type="checkbox" checked=${view.boards} onChange=${(e) => change({ boards: e.target.checked })} /> draw boards</label></div>`;
  }

  function EpisodePage({ run, n, view, change, marks, mark }) {
    const [neighbors, setNeighbors] = useState({});
    useEffect(() => { petting.source.episode(run, n).then(setNeighbors, () => setNeighbors({})); }, [run, n]);
    const link = (to) => `#/episode?run=${run}&n=${to}`;
    const marked = marks.some((one) => one.run === run && one.n === n);
    return html`<${ViewBar} view=${view} change=${change}>
        <a class="button" href="#/episodes?run=${run}">← All episodes</a>
        <a class="button" id="previous" aria-disabled=${!neighbors.previous} href=${neighbors.previous ? link(neighbors.previous) : null}>Previous [</a>
        <a class="button" id="next" aria-disabled=${!neighbors.next} href=${neighbors.next ? link(neighbors.next) : null}>Next ]</a>
        <button onClick=${() => mark(run, n)} aria-pressed=${marked}>${marked ? "Selected" : "Select"} to compare</button>
        ${marks.length === 2 && html`<a class="button" href=${petting.compare_link(marks)}>Compare</a>`}<//>
      <${Episode} run=${run} n=${n} view=${view} />`;
  }

  function ComparePage({ pair, view, change, runs }) {
    return html`<${ViewBar} view=${view} change=${change}><a class="button" href="#/episodes">← All episodes</a><//>
      <div class="pair">${pair.map(([run, n]) => html`<${Episode} key="${run}.${n}" run=${run} n=${n} view=${view} title=${runs[run] && runs[run].name} />`)}</div>`;
  }

  Object.assign(petting, { EpisodePage, ComparePage });
})();
