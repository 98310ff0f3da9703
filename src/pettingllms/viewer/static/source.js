"use strict";
// Data source: the server that sent the page, or the data embedded in an exported page.
(() => {
  const html = htm.bind(preact.h);
  const block = document.getElementById("data");
  const embedded = block && JSON.parse(block.textContent);

  async function request(endpoint, values = {}) {
    const given = Object.entries(values).filter(([, value]) => value !== "" && value != null);
    const response = await fetch(`data/${endpoint}?${new URLSearchParams(given)}`);
    const data = await response.json();
    if (!response.ok) throw new Error(data.error || response.statusText);
    return data;
  }

  const from_server = {
    live: true,
    overview: () => request("overview"),
    state: () => request("state"),
    metrics: (run) => request("metrics", { run }),
    episodes: (query) => request("episodes", query),
    episode: (run, n) => request("episode", { run, n }),
  };

  // The filters that SQLite applies on the server, for the episodes embedded in the page.
  const OUTCOMES = {
    success: (row) => row.success === 1,
    no_success: (row) => row.success === 0,
    partial: (row) => row.success > 0 && row.success < 1,
    failed: (row) => row.failure !== null,
    none: (row) => row.success === null,
  };

  function matches(episode, query) {
    const row = episode.row;
    const searched = [row.id, row.task, row.failure || "", ...row_roles(row),
      ...episode.turns.map((turn) => turn.text)].join("\n").toLowerCase();
    return (query.text || "").toLowerCase().split(/\s+/).every((word) => searched.includes(word))
      && (!query.outcome || OUTCOMES[query.outcome](row))
      && (!query.kind || row.kind === query.kind)
      && (!query.first_step || row.step >= Number(query.first_step))
      && (!query.last_step || row.step <= Number(query.last_step));
  }

  const row_roles = (row) => Object.keys(row.roles);

  function compare(sort, sign) {
    return (one, two) => {
      const [a, b] = [one[sort], two[sort]];
      if (a === null || b === null) return (a === null) - (b === null);
      return (a < b ? -1 : a > b ? 1 : 0) * sign;
    };
  }

  const from_page = embedded && {
    live: false,
    overview: async () => ({
      runs: embedded.overview.runs.map((run, at) => ({
        ...run, indexed_share: 1, num_embedded: embedded.runs[at].episodes.length,
      })),
    }),
    state: async () => null,
    metrics: async (run) => embedded.runs[run].metrics,
    episodes: async (query) => {
      const all = embedded.runs[query.run || 0].episodes;
      const rows = all.filter((one) => matches(one, query)).map((one) => one.row);
      rows.sort(compare(query.sort || "step", query.descending === false ? 1 : -1));
      const start = query.start || 0;
      return { total: rows.length, start, rows: rows.slice(start, start + query.count) };
    },
    episode: async (run, n) => {
      const all = embedded.runs[run].episodes;
      const at = all.findIndex((one) => one.n === n);
      if (at < 0) throw new Error("this file does not contain that episode; open the run folder instead");
      const number = (one) => (one ? one.n : null);
      return { ...all[at], previous: number(all[at - 1]), next: number(all[at + 1]) };
    },
  };

  window.petting = { html, source: from_page || from_server };
})();
