"use strict";
// The table of episodes. It loads one page at a time, so runs can have any number of episodes.
(() => {
  const { html } = petting;
  const { useEffect, useState, useRef } = preactHooks;
  const COUNT = 50;
  const COLUMNS = [
    ["step", "step", "num"], ["id", "episode", ""], ["success", "success", ""], ["reward", "reward", "num"],
    ["steps", "steps", "num"], ["replies", "replies", "num"], ["tokens", "tokens", "num"],
    ["advantage", "max |A|", "num"], ["kind", "rollout", ""], ["failed", "failures", "num"],
  ];
  const OUTCOMES = { "": "any outcome", success: "all roles succeeded", partial: "some roles succeeded",
    no_success: "no role succeeded", failed: "with failures", none: "no outcome recorded" };
  const KINDS = { "": "any rollout", tree: "tree", linear: "linear", replay: "replay" };

  function Outcome({ outcomes }) {
    const entries = Object.entries(outcomes);
    if (!entries.length) return html`<span class="faint">no outcome</span>`;
    return entries.map(([role, success]) => html`<span class="chip ${success ? "good" : "bad"}">
      <span aria-hidden="true">${success ? "✓" : "✗"}</span> ${role}<span class="sr"> ${success ? "succeeded" : "did not succeed"}</span></span>`);
  }

  function Filters({ runs, query, change }) {
    const field = (name) => (e) => change({ [name]: e.target.value, start: 0 });
    return html`<form class="bar" role="search" onSubmit=${(e) => e.preventDefault()}>
      ${runs.length > 1 && html`<label>Run <select value=${query.run} onChange=${(e) => change({ run: Number(e.target.value), start: 0 })}>
        ${runs.map((run, at) => html`<option value=${at}>${run.name}</option>`)}</select></label>`}
      <label class="grow"><span class="sr">Search</span><input id="search" type="search" placeholder="Search replies, tasks, failures  ( / )"
        value=${query.text} onInput=${field("text")} /></label>
      <label><span class="sr">Outcome</span><select id="outcome" value=${query.outcome} onChange=${field("outcome")}>
        ${Object.entries(OUTCOMES).map(([key, name]) => html`<option value=${key}>${name}</option>`)}</select></label>
      <label><span class="sr">Rollout type</span><select id="kind" value=${query.kind} onChange=${field("kind")}>
        ${Object.entries(KINDS).map(([key, name]) => html`<option value=${key}>${name}</option>`)}</select></label>
      <label>Steps <input class="short" type="number" min="0" aria-label="first step" value=${query.first_step} onInput=${field("first_step")} /></label>
      <label>to <input class="short" type="number" min="0" aria-label="last step" value=${query.last_step} onInput=${field("last_step")} /></label>
    </form>`;
  }

  function Head({ query, change }) {
    return html`<thead><tr><th scope="col"><span class="sr">compare</span></th>${COLUMNS.map(([key, name, kind]) => {
      const on = query.sort === key;
      return html`<th scope="col" class=${kind} aria-sort=${on ? (query.descending ? "descending" : "ascending") : "none"}>
        <button class="plain" onClick=${() => change({ sort: key, descending: on ? !query.descending : true, start: 0 })}>
          ${name}<span aria-hidden="true">${on ? (query.descending ? " ↓" : " ↑") : ""}</span></button></th>`;
    })}</tr></thead>`;
  }

  function Row({ row, run, at, marked, mark }) {
    const link = `#/episode?run=${run}&n=${row.n}`;
    return html`<tr>
      <td><input type="checkbox" checked=${marked} aria-label="select ${row.id} to compare" onChange=${() => mark(run, row.n)} /></td>
      <td class="num">${row.step || "–"}</td>
      <td class="name"><a href=${link} data-row=${at}>${petting.visible(row.id)}</a></td>
      <td><${Outcome} outcomes=${row.outcomes} /></td>
      <td class="num" title=${Object.entries(row.rewards).map(([role, x]) => `${role} ${petting.number(x)}`).join(", ")}>${petting.number(row.reward)}</td>
      <td class="num">${row.steps}</td><td class="num">${row.replies}</td><td class="num">${petting.number(row.tokens)}</td>
      <td class="num">${petting.number(row.advantage)}</td><td>${row.kind}</td>
      <td class="num">${row.failed || ""}${row.failure && html`<span class="why" title=${row.failure}>${petting.visible(row.failure)}</span>`}</td></tr>`;
  }

  function TablePage({ runs, query, change, updates, marks, mark }) {
    const [found, setFound] = useState(null);
    const [error, setError] = useState("");
    const [parts, setParts] = useState(0);
    const last_request = useRef(0);
    useEffect(() => {
      const request = ++last_request.current;
      const timer = setTimeout(async () => {
        try {
          const page = await petting.source.episodes({ ...query, count: COUNT });
          if (request === last_request.current) {
            setFound(page);
            setError("");
            if (page.searched < 1) setParts((number) => number + 1);
          }
        } catch (problem) {
          if (request === last_request.current) setError(problem.message);
        }
      }, found ? 60 : 0);
      return () => clearTimeout(timer);
    }, [JSON.stringify(query), updates, parts]);
    useEffect(() => {
      const move = (e) => {
        if (e.target.closest("input:not([type=checkbox]), select, textarea, dialog") || e.ctrlKey || e.metaKey || e.altKey || !found) return;
        const by = { j: 1, k: -1 }[e.key];
        const at = Number(document.activeElement?.dataset.row ?? -1);
        if (by) document.querySelector(`[data-row="${Math.max(0, Math.min(found.rows.length - 1, at + by))}"]`)?.focus();
        else if (e.key === "x" && found.rows[at]) mark(query.run, found.rows[at].n);
      };
      document.addEventListener("keydown", move);
      return () => document.removeEventListener("keydown", move);
    });
    const last = found ? Math.min(found.total, found.start + COUNT) : 0;
    return html`<${Filters} runs=${runs} query=${query} change=${change} />
      ${error && html`<p class="alarm" role="alert">${error}</p>`}
      ${found && html`
      <div class="bar"><span role="status" id="count">${found.total === 0 ? "no matching episodes"
        : `${(found.start + 1).toLocaleString("en")}–${last.toLocaleString("en")} of ${found.total.toLocaleString("en")} episodes`}</span>
        ${found.searched < 1 && html`<span class="faint">searched ${Math.floor(found.searched * 100)}%</span>`}
        <span class="grow"></span>
        ${marks.length > 0 && html`<a class="button" id="compare" href=${petting.compare_link(marks)}
          aria-disabled=${marks.length < 2}>Compare ${marks.length} of 2</a>`}
        <button disabled=${found.start === 0} onClick=${() => change({ start: Math.max(0, found.start - COUNT) })}>← Previous page</button>
        <button disabled=${last >= found.total} onClick=${() => change({ start: found.start + COUNT })}>Next page →</button></div>
      <div class="scroll" tabindex="0" role="region" aria-label="episodes"><table class="episodes"><${Head} query=${query} change=${change} />
        <tbody>${found.rows.map((row, at) => html`<${Row} key=${row.n} row=${row} run=${query.run} at=${at}
          marked=${marks.some((one) => one.run === query.run && one.n === row.n)} mark=${mark} />`)}</tbody></table></div>`}`;
  }

  Object.assign(petting, { TablePage, Outcome });
})();
