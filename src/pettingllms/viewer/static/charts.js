"use strict";
// Learning curves. One chart per metric, with one line per role or policy and run.
(() => {
  const { html } = petting;
  const { useEffect, useRef, useState } = preactHooks;
  const SECTIONS = [
    ["Learning curves", ["roles/reward", "roles/success", "roles/eval_success"]],
    ["Training signal", ["policies/sampler_entropy", "policies/mean_abs_advantage", "policies/zero_share",
      "policies/distinct_replies", "policies/mismatch", "policies/grad_norm"]],
    ["Rewards by level", ["roles/reward_process", "roles/reward_agent", "roles/reward_team"]],
    ["Replies", ["roles/reply_tokens", "roles/cut_share", "roles/failed_share"]],
    ["Throughput", ["rollout/tokens_per_second", "policies/tokens_per_second", "time/step",
      "idle/engines", "idle/slots", "idle/learners"]],
    ["Asynchronous training", ["staleness/mean", "staleness/max", "staleness/dropped_share",
      "staleness/waiting_groups", "policies/stale_share", "policies/drift"]],
  ];
  const NAMES = {
    "roles/reward": "reward", "roles/success": "success on training tasks", "roles/eval_success": "success on test tasks",
    "roles/reward_process": "process reward (this reply)", "roles/reward_agent": "agent reward (this role)",
    "roles/reward_team": "team reward (all roles)", "roles/reply_tokens": "tokens per reply",
    "roles/cut_share": "share of replies truncated", "roles/failed_share": "share of replies failed",
    "policies/sampler_entropy": "sampling entropy", "policies/mean_abs_advantage": "mean |advantage|",
    "policies/zero_share": "share of zero advantages", "policies/distinct_replies": "distinct replies",
    "policies/mismatch": "train-inference mismatch", "policies/grad_norm": "gradient norm",
    "rollout/tokens_per_second": "sampled tokens per second", "policies/tokens_per_second": "trained tokens per second",
    "time/step": "seconds per step", "idle/engines": "idle share of engines",
    "idle/slots": "unused share of the engines' slots", "idle/learners": "idle share of learners",
    "staleness/mean": "mean staleness of tokens", "staleness/max": "largest staleness",
    "staleness/dropped_share": "share of groups dropped", "staleness/waiting_groups": "finished groups that wait",
    "policies/stale_share": "share of stale tokens", "policies/drift": "drift on stale tokens",
  };

  // "roles/planner/reward" is the line "planner" of the chart "roles/reward".
  function chart_and_line(name) {
    const parts = name.split("/");
    const [group, ...rest] = parts;
    if (["roles", "policies", "critics"].includes(group) && rest.length > 1) {
      return [`${group}/${rest[rest.length - 1]}`, rest.slice(0, -1).join("/")];
    }
    return [name, group];
  }

  function group_charts(all) {
    const charts = new Map();
    all.forEach((metrics, run) => {
      for (const [name, values] of Object.entries(metrics ? metrics.series : {})) {
        if (values.every((value) => value === null)) continue;
        const [chart, line] = chart_and_line(name);
        if (!charts.has(chart)) charts.set(chart, []);
        charts.get(chart).push({ line, run, values, steps: metrics.steps });
      }
    });
    return charts;
  }

  function smoothed(values, width) {
    if (width <= 1) return values;
    return values.map((value, at) => {
      if (value === null) return null;
      const recent = values.slice(Math.max(0, at + 1 - width), at + 1).filter((x) => x !== null);
      return recent.reduce((sum, x) => sum + x, 0) / recent.length;
    });
  }

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // Without a cursor the legend shows the last values.
  function show_last_values(plot) {
    if (plot.cursor.idx === null || plot.cursor.idx === undefined) {
      plot.setLegend({ idxs: plot.data.map((values, at) => (at ? values.findLastIndex((x) => x != null) : values.length - 1)) });
    }
  }
  const tick = (x) => (x !== 0 && (Math.abs(x) < 0.001 || Math.abs(x) >= 1e5) ? x.toExponential() : String(Number(x.toPrecision(4))));
  // A line that coincides with an earlier one would hide it, so the earlier one is drawn wider.
  const is_covered = (line, others) => others.some((other) => other !== line
    && line.values.every((value, at) => value === other.values[at]));

  function options(lines, names, size, runs) {
    const order = [...new Set(lines.map((line) => line.line))];
    const axis = { stroke: css("--faint"), grid: { stroke: css("--grid"), width: 1 }, ticks: { stroke: css("--grid") },
      font: "11px system-ui, sans-serif" };
    return {
      ...size, padding: [8, 8, 0, 0], cursor: { sync: { key: "step" }, y: false, focus: { prox: 24 } },
      legend: { live: true }, hooks: { setCursor: [show_last_values] }, focus: { alpha: 0.35 }, scales: { x: { time: false } },
      axes: [{ ...axis, size: 28 }, { ...axis, size: 52, values: (_, ticks) => ticks.map(tick) }],
      series: [{ label: "step", value: (_, x) => (x === null ? "–" : String(x)) },
        ...lines.map((line) => {
          const color = css(`--line-${order.indexOf(line.line) % 6}`);
          const sparse = line.values.filter((x) => x !== null).length < line.values.length / 2;
          return {
            label: runs.length > 1 ? `${line.line} · ${names[line.run]}` : line.line, stroke: color,
            width: is_covered(line, lines.slice(lines.indexOf(line))) ? 5 : 1.75,
            dash: line.run ? [5, 4] : undefined, spanGaps: true,
            points: { show: sparse || line.values.length < 2, size: 5, fill: color },
            value: (_, x) => petting.number(x),
          };
        })],
    };
  }

  function Chart({ name, lines, runs, smooth, theme }) {
    const container = useRef(null);
    const title = NAMES[name] || name.replace(/_/g, " ").replace("/", ": ");
    useEffect(() => {
      const box = container.current;
      const data = uPlot.join(lines.map((line) => [line.steps, smoothed(line.values, smooth)]));
      const size = () => ({ width: Math.max(220, box.clientWidth), height: 190 });
      const plot = new uPlot(options(lines, runs.map((run) => run.name), size(), runs), data, box);
      show_last_values(plot);
      const observer = new ResizeObserver(() => plot.setSize(size()));
      observer.observe(box);
      return () => { observer.disconnect(); plot.destroy(); };
    }, [lines, smooth, theme]);
    const ranges = lines.map((line) => {
      const known = line.values.filter((x) => x !== null);
      return `${line.line} from ${petting.number(known[0])} to ${petting.number(known[known.length - 1])}`;
    });
    return html`<figure class="chart"><figcaption>${title}</figcaption>
      <div ref=${container} role="img" aria-label="${title}: ${ranges.join(", ")}"></div></figure>`;
  }

  function Curves({ runs, metrics, theme }) {
    const [smooth, setSmooth] = useState(1);
    const [show_others, setShowOthers] = useState(false);
    const charts = preactHooks.useMemo(() => group_charts(metrics), [metrics]);
    if (!metrics.some((one) => one && one.steps.length)) {
      return html`<p class="note">No metrics yet. They appear here after the first training step.</p>`;
    }
    const known = new Set(SECTIONS.flatMap(([, names]) => names));
    const others = [...charts.keys()].filter((name) => !known.has(name)).sort();
    const steps_per_point = Math.max(...metrics.map((one) => (one ? one.steps_per_point : 1)));
    const draw = (names) => html`<div class="charts">${names.filter((name) => charts.has(name)).map((name) => html`
      <${Chart} key=${name} name=${name} lines=${charts.get(name)} runs=${runs} smooth=${smooth} theme=${theme} />`)}</div>`;
    return html`
      <div class="bar"><label>Smoothing <select value=${smooth} onChange=${(e) => setSmooth(Number(e.target.value))}>
        ${[1, 5, 20, 50].map((width) => html`<option value=${width}>${width === 1 ? "off" : `${width} points`}</option>`)}
        </select></label>
        ${steps_per_point > 1 && html`<span class="faint">each point is the mean of ${steps_per_point} steps</span>`}
        ${runs.length > 1 && html`<span class="faint">solid: ${runs[0].name}; dashed: ${runs[1].name}</span>`}</div>
      ${SECTIONS.filter(([, names]) => names.some((name) => charts.has(name))).map(([title, names]) => html`
        <section key=${title}><h2>${title}</h2>${draw(names)}</section>`)}
      ${others.length > 0 && html`<details class="more" onToggle=${(e) => setShowOthers(e.target.open)}>
        <summary>${others.length} more metrics</summary>${show_others && draw(others)}</details>`}`;
  }

  Object.assign(petting, { Curves });
})();
