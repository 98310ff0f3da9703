"use strict";
// Summary of each run, its diagnostics, and the config differences between two runs.
(() => {
  const { html } = petting;

  function flatten(settings, prefix = "") {
    const found = {};
    for (const [key, value] of Object.entries(settings)) {
      const name = prefix + key;
      if (value && typeof value === "object" && !Array.isArray(value)) Object.assign(found, flatten(value, `${name}.`));
      else found[name] = Array.isArray(value) ? JSON.stringify(value) : String(value);
    }
    return found;
  }

  function Facts({ run, metrics }) {
    const { settings } = run;
    const roles = Object.entries(settings.roles || {});
    const facts = [
      ["environment", settings.env && settings.env.id],
      ["algorithm", settings.algo && settings.algo.type],
      ["roles", roles.map(([role, policy]) => `${role} → ${policy}`).join(", ")],
      ["trained policies", run.trained.join(", ")],
      ["steps", metrics && `${metrics.num_steps}${settings.train && settings.train.num_steps ? ` of ${settings.train.num_steps}` : ""}`],
      ["episodes", run.num_embedded ? `${run.num_embedded} of ${run.num_episodes}, evenly spaced` : run.num_episodes.toLocaleString("en")],
    ];
    return html`<section class="facts" aria-label="summary of ${run.name}"><h2>${run.name}</h2>
      <dl>${facts.filter(([, value]) => value).map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
      ${run.problem && html`<p class="alarm">Comparison groups are unavailable: ${run.problem}</p>`}
      ${metrics && metrics.diagnostics.length > 0 && html`<div class="diagnostics"><h3>Diagnostics</h3><ul>
        ${metrics.diagnostics.map((diagnosis) => html`<li>${diagnosis.what}. <span class="faint">${diagnosis.help}.</span></li>`)}</ul></div>`}
    </section>`;
  }

  function Differences({ runs }) {
    const all = runs.map((run) => flatten(run.settings));
    const keys = [...new Set(all.flatMap(Object.keys))].filter((key) => all[0][key] !== all[1][key]).sort();
    return html`<section><h2>Config differences</h2>
      ${keys.length === 0 ? html`<p class="note">The configs are identical.</p>` : html`
      <div class="scroll" tabindex="0" role="region" aria-label="settings that differ"><table><thead><tr><th scope="col">setting</th>
        ${runs.map((run) => html`<th scope="col">${run.name}</th>`)}</tr></thead>
        <tbody>${keys.map((key) => html`<tr><th scope="row"><code>${key}</code></th>
          ${all.map((one) => html`<td>${one[key] === undefined ? "–" : one[key]}</td>`)}</tr>`)}</tbody></table></div>`}
    </section>`;
  }

  function Settings({ run }) {
    const found = Object.entries(flatten(run.settings));
    if (!found.length) return null;
    return html`<details class="more"><summary>Full config of ${run.name}</summary>
      <div class="scroll" tabindex="0" role="region" aria-label="settings of ${run.name}"><table><tbody>
        ${found.map(([key, value]) => html`<tr><th scope="row"><code>${key}</code></th><td>${value}</td></tr>`)}
        ${Object.entries(run.versions).map(([key, value]) => html`<tr><th scope="row">${key} version</th><td>${value}</td></tr>`)}
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
