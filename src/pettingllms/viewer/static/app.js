"use strict";
// The page: what the address asks for, what is new in the run, keys, and the colours.
(() => {
  const { html, source } = petting;
  const { useEffect, useState } = preactHooks;
  const PAUSE = 2000;
  const QUERY = { run: 0, text: "", outcome: "", kind: "", first_step: "", last_step: "", sort: "step", descending: true, start: 0 };
  const KEYS = [["g", "runs"], ["e", "episodes"], ["/", "search"], ["j, k", "down and up the table"], ["Enter", "open"],
    ["x", "mark to compare"], ["c", "compare what is marked"], ["[, ]", "episode before, after"], ["s", "next shade"], ["?", "these keys"]];

  function read() {
    const [path, text] = (location.hash.slice(1) || "/").split("?");
    return { path, values: Object.fromEntries(new URLSearchParams(text || "")) };
  }

  const whole = (text, other) => (/^\d+$/.test(text || "") ? Number(text) : other);

  function query_of(values) {
    const found = { ...QUERY, ...values };
    return { ...found, run: whole(values.run, 0), start: whole(values.start, 0), descending: values.descending !== "false" };
  }

  function link_of(query) {
    const set = Object.entries(query).filter(([key, value]) => value !== QUERY[key]);
    return `#/episodes?${new URLSearchParams(set)}`;
  }

  const pair_of = (values) => [values.a, values.b].filter(Boolean).map((one) => one.split(".").map((x) => whole(x, 0)));
  petting.compare_link = (marks) => (marks.length < 2 ? null : `#/compare?a=${marks[0].run}.${marks[0].n}&b=${marks[1].run}.${marks[1].n}`);

  function kept(name, other) {
    try { return localStorage.getItem(`petting-${name}`) || other; } catch { return other; }
  }
  function keep(name, value) {
    try { localStorage.setItem(`petting-${name}`, value); } catch { /* a file may have no storage */ }
  }

  function Keys({ close }) {
    return html`<dialog class="keys" ref=${(box) => box && !box.open && box.showModal()} onClose=${close} aria-label="keys">
      <h2>Keys</h2><dl>${KEYS.map(([key, what]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${what}</dd></div>`)}</dl>
      <form method="dialog"><button>Close</button></form></dialog>`;
  }

  function Top({ runs, path, live, read_share, problem, theme, setTheme, help }) {
    const tab = (to, name) => html`<a href="#${to}" aria-current=${path === to ? "page" : null}>${name}</a>`;
    return html`<header class="top"><h1>${runs.map((run) => run.name).join(" and ") || "PettingLLMs"}</h1>
      <nav aria-label="pages">${tab("/", runs.length > 1 ? "Runs" : "Run")}${tab("/episodes", "Episodes")}</nav>
      <span class="grow"></span>
      ${read_share < 1 && html`<span class="faint" role="status">reading episodes <progress max="1" value=${read_share} aria-label="episodes read"></progress></span>`}
      ${live && html`<span class="live" role="status">live</span>`}
      ${problem && html`<span class="alarm" role="alert">${problem}</span>`}
      <label class="theme"><span class="sr">Colours</span><select value=${theme} onChange=${(e) => setTheme(e.target.value)}>
        ${["auto", "light", "dark"].map((name) => html`<option value=${name}>${name}</option>`)}</select></label>
      <button class="small" onClick=${help} aria-label="keys">?</button></header>`;
  }

  const sizes = (runs) => runs.map((run) => run.metrics_size).join();
  let at_first = "";

  function useNews(setRuns) {
    const [news, setNews] = useState({ episodes: "", metrics: "", live: false, problem: "" });
    useEffect(() => {
      if (!source.live) return undefined;
      let timer = null;
      const look = async () => {
        try {
          const state = document.hidden ? null : await source.state();
          if (state) {
            const episodes = state.runs.map((run) => `${run.num_episodes}.${run.last}`).join();
            const metrics = sizes(state.runs);
            setRuns((runs) => runs && runs.map((run, at) => ({ ...run, ...state.runs[at] })));
            setNews((old) => {
              const same = (old.metrics || at_first) === metrics;
              const still = same ? (old.still || 0) + 1 : 0;
              return { episodes, metrics, still, live: !same || (old.live && still < 15), problem: state.problem };
            });
          }
        } catch {
          setNews((old) => ({ ...old, live: false, problem: "the viewer has ended; start it again to go on" }));
        }
        timer = setTimeout(look, PAUSE);
      };
      timer = setTimeout(look, PAUSE);
      return () => clearTimeout(timer);
    }, []);
    return news;
  }

  function useKeys({ marks, mark, place, change, help }) {
    useEffect(() => {
      const press = (e) => {
        if (e.target.closest("input:not([type=checkbox]), select, textarea, dialog") || e.ctrlKey || e.metaKey || e.altKey) return;
        const shades = Object.keys(petting.SHADES);
        const act = {
          g: () => { location.hash = "#/"; },
          e: () => { location.hash = "#/episodes"; },
          c: () => { if (marks.length === 2) location.hash = petting.compare_link(marks); },
          s: () => change((view) => ({ shade: shades[(shades.indexOf(view.shade) + 1) % shades.length] })),
          "[": () => document.getElementById("before")?.click(),
          "]": () => document.getElementById("after")?.click(),
          "?": help,
          "/": () => {
            const box = document.getElementById("search");
            if (box) { box.focus(); return; }
            location.hash = "#/episodes";
            setTimeout(() => document.getElementById("search")?.focus(), 100);
          },
          x: () => { if (place.path === "/episode") mark(whole(place.values.run, 0), whole(place.values.n, 0)); },
        }[e.key];
        if (act) { e.preventDefault(); act(); }
      };
      document.addEventListener("keydown", press);
      return () => document.removeEventListener("keydown", press);
    });
  }

  function App() {
    const [place, setPlace] = useState(read());
    const [runs, setRuns] = useState(null);
    const [metrics, setMetrics] = useState([]);
    const [error, setError] = useState("");
    const [theme, setTheme] = useState(kept("theme", "auto"));
    const [view, setView] = useState({ shade: "advantage", trunk: false, boards: true });
    const [marks, setMarks] = useState([]);
    const [keys, setKeys] = useState(false);
    const news = useNews(setRuns);
    const change = (part) => setView((old) => ({ ...old, ...(typeof part === "function" ? part(old) : part) }));
    const mark = (run, n) => setMarks((old) => {
      const rest = old.filter((one) => one.run !== run || one.n !== n);
      return rest.length < old.length ? rest : [...old.slice(-1), { run, n }];
    });
    useEffect(() => {
      const turn = () => { setPlace(read()); };
      addEventListener("hashchange", turn);
      source.overview().then((found) => { at_first = sizes(found.runs); setRuns(found.runs); }, (problem) => setError(problem.message));
      return () => removeEventListener("hashchange", turn);
    }, []);
    useEffect(() => { window.scrollTo(0, 0); }, [place.path, place.values.n]);
    const curves = !["/episodes", "/episode", "/compare"].includes(place.path);
    useEffect(() => {
      if (runs && curves) Promise.all(runs.map((_, at) => source.metrics(at))).then(setMetrics, (problem) => setError(problem.message));
    }, [runs !== null, news.metrics, curves]);
    const [drawn, setDrawn] = useState(theme);
    useEffect(() => {
      const dark = matchMedia("(prefers-color-scheme: dark)");
      const set = () => {
        const now = theme === "auto" ? (dark.matches ? "dark" : "light") : theme;
        document.documentElement.dataset.theme = now;
        setDrawn(now);
      };
      set();
      keep("theme", theme);
      dark.addEventListener("change", set);
      return () => dark.removeEventListener("change", set);
    }, [theme]);
    useKeys({ marks, mark, place, change, help: () => setKeys(true) });
    useEffect(() => { if (runs) document.title = `${runs.map((run) => run.name).join(", ")} – PettingLLMs`; }, [runs !== null]);
    if (error) return html`<main><p class="alarm" role="alert">${error}</p></main>`;
    if (!runs) return html`<main><p class="loading">Loading…</p></main>`;
    const { path, values } = place;
    const query = query_of(values);
    const share = Math.min(...runs.map((run) => run.read));
    const pages = {
      "/": () => html`<${petting.RunsPage} runs=${runs} metrics=${metrics} theme=${drawn} />`,
      "/episodes": () => html`<${petting.TablePage} runs=${runs} query=${query} news=${news.episodes} marks=${marks} mark=${mark}
        change=${(part) => { history.replaceState(null, "", link_of({ ...query, ...part })); setPlace(read()); }} />`,
      "/episode": () => html`<${petting.EpisodePage} run=${whole(values.run, 0)} n=${whole(values.n, 0)} view=${view} change=${change} marks=${marks} mark=${mark} />`,
      "/compare": () => html`<${petting.ComparePage} pair=${pair_of(values)} view=${view} change=${change} runs=${runs} />`,
    };
    return html`<${Top} runs=${runs} path=${path} live=${news.live} read_share=${share} problem=${news.problem} theme=${theme}
        setTheme=${setTheme} help=${() => setKeys(true)} />
      <main>${(pages[path] || pages["/"])()}</main>
      ${keys && html`<${Keys} close=${() => setKeys(false)} />`}`;
  }

  const root = document.getElementById("app");
  root.replaceChildren();
  preact.render(html`<${App} />`, root);
})();
