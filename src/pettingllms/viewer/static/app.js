"use strict";
// The application: routing by the URL hash, polling for new data, keyboard shortcuts and the theme.
(() => {
  const { html, source } = petting;
  const { useEffect, useState } = preactHooks;
  const POLL_MS = 2000;
  const QUERY = { run: 0, text: "", outcome: "", kind: "", first_step: "", last_step: "", sort: "step", descending: true, start: 0 };
  const KEYS = [["g", "learning curves"], ["e", "episodes"], ["/", "search episodes"], ["j, k", "next, previous row"], ["Enter", "open the episode"],
    ["x", "select for comparison"], ["c", "compare the selected episodes"], ["[, ]", "previous, next episode"], ["s", "next token shading"], ["?", "show this list"]];

  function read_hash() {
    const [path, text] = (location.hash.slice(1) || "/").split("?");
    return { path, values: Object.fromEntries(new URLSearchParams(text || "")) };
  }

  const integer = (text, fallback) => (/^\d+$/.test(text || "") ? Number(text) : fallback);

  function parse_query(values) {
    const found = { ...QUERY, ...values };
    return { ...found, run: integer(values.run, 0), start: integer(values.start, 0), descending: values.descending !== "false" };
  }

  function query_link(query) {
    const set = Object.entries(query).filter(([key, value]) => value !== QUERY[key]);
    return `#/episodes?${new URLSearchParams(set)}`;
  }

  const parse_pair = (values) => [values.a, values.b].filter(Boolean).map((one) => one.split(".").map((x) => integer(x, 0)));
  petting.compare_link = (marks) => (marks.length < 2 ? null : `#/compare?a=${marks[0].run}.${marks[0].n}&b=${marks[1].run}.${marks[1].n}`);

  function load_setting(name, fallback) {
    try { return localStorage.getItem(`petting-${name}`) || fallback; } catch { return fallback; }
  }
  function save_setting(name, value) {
    try { localStorage.setItem(`petting-${name}`, value); } catch { /* file:// pages may have no storage */ }
  }

  function Keys({ close }) {
    return html`<dialog class="keys" ref=${(box) => box && !box.open && box.showModal()} onClose=${close} aria-label="keyboard shortcuts">
      <h2>Keyboard shortcuts</h2><dl>${KEYS.map(([key, action]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${action}</dd></div>`)}</dl>
      <form method="dialog"><button>Close</button></form></dialog>`;
  }

  function Top({ runs, path, live, indexed_share, problem, theme, setTheme, help }) {
    const tab = (to, label, also = []) => html`<a href="#${to}" aria-current=${[to, ...also].includes(path) ? "page" : null}>${label}</a>`;
    return html`<header class="top"><h1>${runs.map((run) => run.name).join(" and ") || "PettingLLMs"}</h1>
      <nav aria-label="pages">${tab("/", "Learning curves")}${tab("/episodes", "Episodes", ["/episode", "/compare"])}</nav>
      <span class="grow"></span>
      ${indexed_share < 1 && html`<span class="faint" role="status">indexing episodes <progress max="1" value=${indexed_share} aria-label="episodes indexed"></progress></span>`}
      ${live && html`<span class="live" role="status">live</span>`}
      ${problem && html`<span class="alarm" role="alert">${problem}</span>`}
      <label class="theme"><span class="sr">Theme</span><select value=${theme} onChange=${(e) => setTheme(e.target.value)}>
        ${["auto", "light", "dark"].map((name) => html`<option value=${name}>${name}</option>`)}</select></label>
      <button class="small" onClick=${help} aria-label="keyboard shortcuts">?</button></header>`;
  }

  const metrics_sizes = (runs) => runs.map((run) => run.metrics_size).join();
  let initial_sizes = "";

  function useUpdates(setRuns) {
    const [updates, setUpdates] = useState({ episodes: "", metrics: "", live: false, problem: "" });
    useEffect(() => {
      if (!source.live) return undefined;
      let timer = null;
      const poll = async () => {
        try {
          const state = document.hidden ? null : await source.state();
          if (state) {
            const episodes = state.runs.map((run) => `${run.num_episodes}.${run.last}`).join();
            const metrics = metrics_sizes(state.runs);
            setRuns((runs) => runs && runs.map((run, at) => ({ ...run, ...state.runs[at] })));
            setUpdates((old) => {
              const same = (old.metrics || initial_sizes) === metrics;
              const num_idle = same ? (old.num_idle || 0) + 1 : 0;
              return { episodes, metrics, num_idle, live: !same || (old.live && num_idle < 15), problem: state.problem };
            });
          }
        } catch {
          setUpdates((old) => ({ ...old, live: false, problem: "the viewer has stopped; restart it to continue" }));
        }
        timer = setTimeout(poll, POLL_MS);
      };
      timer = setTimeout(poll, POLL_MS);
      return () => clearTimeout(timer);
    }, []);
    return updates;
  }

  function useKeys({ marks, mark, route, change, help }) {
    useEffect(() => {
      const on_key = (e) => {
        if (e.target.closest("input:not([type=checkbox]), select, textarea, dialog") || e.ctrlKey || e.metaKey || e.altKey) return;
        const shades = Object.keys(petting.SHADES);
        const action = {
          g: () => { location.hash = "#/"; },
          e: () => { location.hash = "#/episodes"; },
          c: () => { if (marks.length === 2) location.hash = petting.compare_link(marks); },
          s: () => change((view) => ({ shade: shades[(shades.indexOf(view.shade) + 1) % shades.length] })),
          "[": () => document.getElementById("previous")?.click(),
          "]": () => document.getElementById("next")?.click(),
          "?": help,
          "/": () => {
            const box = document.getElementById("search");
            if (box) { box.focus(); return; }
            location.hash = "#/episodes";
            setTimeout(() => document.getElementById("search")?.focus(), 100);
          },
          x: () => { if (route.path === "/episode") mark(integer(route.values.run, 0), integer(route.values.n, 0)); },
        }[e.key];
        if (action) { e.preventDefault(); action(); }
      };
      document.addEventListener("keydown", on_key);
      return () => document.removeEventListener("keydown", on_key);
    });
  }

  function App() {
    const [route, setRoute] = useState(read_hash());
    const [runs, setRuns] = useState(null);
    const [metrics, setMetrics] = useState([]);
    const [error, setError] = useState("");
    const [theme, setTheme] = useState(load_setting("theme", "auto"));
    const [view, setView] = useState({ shade: "advantage", main_only: false, boards: true });
    const [marks, setMarks] = useState([]);
    const [keys, setKeys] = useState(false);
    const updates = useUpdates(setRuns);
    const change = (part) => setView((old) => ({ ...old, ...(typeof part === "function" ? part(old) : part) }));
    const mark = (run, n) => setMarks((old) => {
      const rest = old.filter((one) => one.run !== run || one.n !== n);
      return rest.length < old.length ? rest : [...old.slice(-1), { run, n }];
    });
    useEffect(() => {
      const navigate = () => { setRoute(read_hash()); };
      addEventListener("hashchange", navigate);
      source.overview().then((found) => { initial_sizes = metrics_sizes(found.runs); setRuns(found.runs); }, (problem) => setError(problem.message));
      return () => removeEventListener("hashchange", navigate);
    }, []);
    useEffect(() => { window.scrollTo(0, 0); }, [route.path, route.values.n]);
    const on_curves_page = !["/episodes", "/episode", "/compare"].includes(route.path);
    useEffect(() => {
      if (runs && on_curves_page) Promise.all(runs.map((_, at) => source.metrics(at))).then(setMetrics, (problem) => setError(problem.message));
    }, [runs !== null, updates.metrics, on_curves_page]);
    const [applied_theme, setAppliedTheme] = useState(theme);
    useEffect(() => {
      const dark = matchMedia("(prefers-color-scheme: dark)");
      const apply = () => {
        const now = theme === "auto" ? (dark.matches ? "dark" : "light") : theme;
        document.documentElement.dataset.theme = now;
        setAppliedTheme(now);
      };
      apply();
      save_setting("theme", theme);
      dark.addEventListener("change", apply);
      return () => dark.removeEventListener("change", apply);
    }, [theme]);
    useKeys({ marks, mark, route, change, help: () => setKeys(true) });
    useEffect(() => { if (runs) document.title = `${runs.map((run) => run.name).join(", ")} – PettingLLMs`; }, [runs !== null]);
    if (error) return html`<main><p class="alarm" role="alert">${error}</p></main>`;
    if (!runs) return html`<main><p class="loading">Loading…</p></main>`;
    const { path, values } = route;
    const query = parse_query(values);
    const indexed_share = Math.min(...runs.map((run) => run.indexed_share));
    const pages = {
      "/": () => html`<${petting.RunsPage} runs=${runs} metrics=${metrics} theme=${applied_theme} />`,
      "/episodes": () => html`<${petting.TablePage} runs=${runs} query=${query} updates=${updates.episodes} marks=${marks} mark=${mark}
        change=${(part) => { history.replaceState(null, "", query_link({ ...query, ...part })); setRoute(read_hash()); }} />`,
      "/episode": () => html`<${petting.EpisodePage} run=${integer(values.run, 0)} n=${integer(values.n, 0)} view=${view} change=${change} marks=${marks} mark=${mark} />`,
      "/compare": () => html`<${petting.ComparePage} pair=${parse_pair(values)} view=${view} change=${change} runs=${runs} />`,
    };
    return html`<${Top} runs=${runs} path=${path} live=${updates.live} indexed_share=${indexed_share} problem=${updates.problem} theme=${theme}
        setTheme=${setTheme} help=${() => setKeys(true)} />
      <main>${(pages[path] || pages["/"])()}</main>
      ${keys && html`<${Keys} close=${() => setKeys(false)} />`}`;
  }

  const root = document.getElementById("app");
  root.replaceChildren();
  preact.render(html`<${App} />`, root);
})();
