"use strict";
// Where the data comes from: the server that sent the page, or the page itself if it carries it all.
(() => {
  const html = htm.bind(preact.h);
  const block = document.getElementById("data");
  const carried = block && JSON.parse(block.textContent);

  async function ask(what, values = {}) {
    const given = Object.entries(values).filter(([, value]) => value !== "" && value != null);
    const answer = await fetch(`data/${what}?${new URLSearchParams(given)}`);
    const data = await answer.json();
    if (!answer.ok) throw new Error(data.error || answer.statusText);
    return data;
  }

  const served = {
    live: true,
    overview: () => ask("overview"),
    state: () => ask("state"),
    metrics: (run) => ask("metrics", { run }),
    episodes: (question) => ask("episodes", question),
    episode: (run, n) => ask("episode", { run, n }),
  };

  // What SQLite does for the server, over the few episodes that a file carries.
  const OUTCOMES = {
    reached: (row) => row.success === 1,
    missed: (row) => row.success === 0,
    split: (row) => row.success > 0 && row.success < 1,
    failed: (row) => row.failure !== null,
    none: (row) => row.success === null,
  };

  function matches(episode, question) {
    const row = episode.row;
    const said = [row.id, row.task, row.failure || "", ...row_roles(row),
      ...episode.turns.map((turn) => turn.text)].join("\n").toLowerCase();
    return (question.text || "").toLowerCase().split(/\s+/).every((word) => said.includes(word))
      && (!question.outcome || OUTCOMES[question.outcome](row))
      && (!question.kind || row.kind === question.kind)
      && (!question.first_step || row.step >= Number(question.first_step))
      && (!question.last_step || row.step <= Number(question.last_step));
  }

  const row_roles = (row) => Object.keys(row.roles);

  function compare(sort, sign) {
    return (one, two) => {
      const [a, b] = [one[sort], two[sort]];
      if (a === null || b === null) return (a === null) - (b === null);
      return (a < b ? -1 : a > b ? 1 : 0) * sign;
    };
  }

  const whole = carried && {
    live: false,
    overview: async () => ({
      runs: carried.overview.runs.map((run, at) => ({
        ...run, read: 1, num_carried: carried.runs[at].episodes.length,
      })),
    }),
    state: async () => null,
    metrics: async (run) => carried.runs[run].metrics,
    episodes: async (question) => {
      const all = carried.runs[question.run || 0].episodes;
      const rows = all.filter((one) => matches(one, question)).map((one) => one.row);
      rows.sort(compare(question.sort || "step", question.descending === false ? 1 : -1));
      const start = question.start || 0;
      return { total: rows.length, start, rows: rows.slice(start, start + question.count) };
    },
    episode: async (run, n) => {
      const all = carried.runs[run].episodes;
      const at = all.findIndex((one) => one.n === n);
      if (at < 0) throw new Error("this file does not carry that episode; the run's folder has it");
      const number = (one) => (one ? one.n : null);
      return { ...all[at], before: number(all[at - 1]), after: number(all[at + 1]) };
    },
  };

  window.petting = { html, source: whole || served };
})();
