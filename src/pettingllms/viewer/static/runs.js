"use strict";
// What was trained, what to worry about, and where two runs differ.
(() => {
  const { html } = petting;

  function flat(settings, before = "") {
    const found = {};
    for (const [key, value] of Object.entries(settings)) {
      const name = before + key;
      if (value && typeof value === "object" && !Array.isArray(value)) Object.assign(found, flat(value, `${name}.`));
      else found[name] = Array.isArray(value) ? JSON.stringify(value) : String(value);
    }
    return found;
  }

  function Facts({ run, metrics }) {
    const set = run.settings;
    const roles = Object.entries(set.roles || {});
    const facts = [
      ["environment", set.env && set.env.id],
      ["algorithm", set.algo && set.algo.type],
      ["roles", roles.map(([role, policy]) => `${role} → ${policy}`).join(", ")],
      ["learns", run.trained.join(", ")],
      ["steps", metrics && `${metrics.num_steps}${set.train && set.train.num_steps ? ` of ${set.train.num_steps}` : ""}`],
      ["episodes", run.num_carried ? `${run.num_carried} of ${run.num_episodes}, evenly spread` : run.num_episodes.toLocaleString("en")],
    ];
    return html`<section class="facts" aria-label="about ${run.name}"><h2>${run.name}</h2>
      <dl>${facts.filter(([, value]) => value).map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
      ${run.problem && html`<p class="alarm">Nothing is known of the comparisons: ${run.problem}</p>`}
      ${metrics && metrics.diagnostics.length > 0 && html`<div class="diagnostics"><h3>Worth a look</h3><ul>
        ${metrics.diagnostics.map((worry) => html`<li>${worry.what}. <span class="faint">${worry.help}.</span></li>`)}</ul></div>`}
    </section>`;
  }

  function Differences({ runs }) {
    const all = runs.map((run) => flat(run.settings));
    const keys = [...new Set(all.flatMap(Object.keys))].filter((key) => all[0][key] !== all[1][key]).sort();
    return html`<section><h2>Where the runs differ</h2>
      ${keys.length === 0 ? html`<p class="note">Their configurations are the same.</p>` : html`
      <div class="scroll" tabindex="0" role="region" aria-label="settings that differ"><table><thead><tr><th scope="col">setting</th>
        ${runs.map((run) => html`<th scope="col">${run.name}</th>`)}</tr></thead>
        <tbody>${keys.map((key) => html`<tr><th scope="row"><code>${key}</code></th>
          ${all.map((one) => html`<td>${one[key] === undefined ? "–" : one[key]}</td>`)}</tr>`)}</tbody></table></div>`}
    </section>`;
  }

  function Settings({ run }) {
    const found = Object.entries(flat(run.settings));
    if (!found.length) return null;
    return html`<details class="more"><summary>Every setting of ${run.name}</summary>
      <div class="scroll" tabindex="0" role="region" aria-label="settings of ${run.name}"><table><tbody>
        ${found.map(([key, value]) => html`<tr><th scope="row"><code>${key}</code></th><td>${value}</td></tr>`)}
        ${Object.entries(run.versions).map(([key, value]) => html`<tr><th scope="row">version of ${key}</th><td>${value}</td></tr>`)}
      </tbody></table></div></details>`;
  }

  function RunsPage({ runs, metrics, theme }) {
    return html`<div class="facts-row">${runs.map((run, at) => html`<${Facts} run=${run} metrics=${metrics[at]} />`)}</div>
      <${petting.Curves} runs=${runs} metrics=${metrics} theme=${theme} />
      ${runs.length > 1 && html`<${Differences} runs=${runs} />`}
      ${runs.map((run) => html`<${Settings} run=${run} />`)}`;
  }

  Object.assign(petting, { RunsPage });
})();
