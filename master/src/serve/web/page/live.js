// Keeps the live page up to date: puts parts that have changed in their places, counts the clocks, and says when the
// connection is lost. What is shown is drawn by the cluster.
"use strict";
(() => {
  const { body, documentElement: root } = document;
  const state = document.getElementById("state");
  const slow = matchMedia("(prefers-reduced-motion: reduce)");
  const RETRY_MS = 2000;
  const SILENCE_MS = 25000;

  // --- the cluster's clock, in milliseconds since its start

  let base = { cluster: Number(body.dataset.now), here: performance.now() };
  let stopped = null;
  const now = () => base.cluster + (stopped ?? performance.now()) - base.here;

  const timeOfDay = (at) => new Date(Date.now() + at - now()).toTimeString().slice(0, 5);

  // As `span` in the report's words.
  function span(ms) {
    const seconds = Math.round(Math.max(0, ms) / 1000);
    if (seconds < 10) return `${(Math.max(0, ms) / 1000).toFixed(1)} s`;
    const [h, m, s] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
    if (h) return m ? `${h} h ${m} min` : `${h} h`;
    if (m) return s ? `${m} min ${s} s` : `${m} min`;
    return `${s} s`;
  }

  const CLOCKS = {
    left: (at) => `${span(at - now())} left`,
    in: (at) => (at > now() ? `in ${span(at - now())}` : "now"),
    ago: (at) => `${span(now() - at)} ago`,
    for: (at) => span(now() - at),
    done: (at) => {
      const left = at - now();
      if (left <= 0) return "now";
      return left < 60000 ? `in ${span(left)}` : `in ${span(left)}, about ${timeOfDay(at)}`;
    },
  };

  function tick() {
    for (const clock of document.querySelectorAll(".clock")) {
      const text = CLOCKS[clock.dataset.clock](Number(clock.dataset.at));
      if (clock.firstChild.data !== text) clock.firstChild.data = text;
    }
    for (const bands of document.querySelectorAll(".bands")) {
      const passed = now() - Number(bands.dataset.from);
      for (const flow of bands.querySelectorAll(".flow")) {
        const width = flow.ownerSVGElement.clientWidth;
        flow.style.transform = `translateX(${(-passed / bands.dataset.window / 2) * width}px)`;
      }
    }
  }

  // --- changes

  // Makes `old` look like `fresh` and keeps what is the same, with its focus and its scroll position.
  function become(old, fresh) {
    if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) return old.replaceWith(fresh);
    if (old.nodeType === Node.TEXT_NODE) {
      if (old.data !== fresh.data) old.data = fresh.data;
      return undefined;
    }
    for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && name !== "style") old.removeAttribute(name);
    for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    children(old, fresh);
    return undefined;
  }

  function children(old, fresh) {
    const [before, after] = [[...old.childNodes], [...fresh.childNodes]];
    after.forEach((node, index) => (index < before.length ? become(before[index], node) : old.append(node)));
    before.slice(after.length).forEach((node) => node.remove());
  }

  const parser = new DOMParser();
  function put(id, text) {
    const fresh = parser.parseFromString(`<div>${text}</div>`, "text/html").body.firstChild;
    children(document.getElementById(id), document.importNode(fresh, true));
  }

  // --- the state of the connection

  function say(kind, text) {
    if (body.dataset.state !== kind) body.dataset.state = kind;
    if (state.textContent !== text) state.textContent = text;
  }

  const WORDS = {
    asking: "Asking the cluster",
    live: "Live",
    silent: "The cluster does not answer: it may be busy or stopped. What is shown may be old.",
  };

  let source = null;
  let heard = performance.now();
  let again;

  function lost(why) {
    if (body.dataset.state === "ended" || stopped !== null) return;
    stopped = performance.now();
    say("lost", `Connection lost since ${new Date().toTimeString().slice(0, 8)}${why}. What is shown is of then. Trying again.`);
  }

  function onNews(event) {
    heard = performance.now();
    const news = JSON.parse(event.data);
    base = { cluster: news.now, here: heard };
    stopped = null;
    for (const [id, text] of Object.entries(news.parts)) put(id, text);
    tick();
    if (news.state === "ended") {
      stopped = performance.now();
      source.close();
      source = null;
      say("ended", `The cluster ended at ${new Date().toTimeString().slice(0, 8)}. This is how it was.`);
    } else {
      say(news.state, WORDS[news.state]);
    }
    root.dataset.drawn = String(Number(root.dataset.drawn ?? 0) + 1);
  }

  function connect() {
    source?.close();
    heard = performance.now();
    source = new EventSource("events");
    source.addEventListener("message", onNews);
    source.addEventListener("error", () => {
      lost("");
      // A browser tries again by itself, unless it was refused.
      if (source.readyState === EventSource.CLOSED) {
        clearTimeout(again);
        again = setTimeout(connect, RETRY_MS);
      }
    });
  }

  // A connection that is open and silent: a machine that sleeps, a tunnel that hangs.
  setInterval(() => {
    if (source && performance.now() - heard > SILENCE_MS) {
      lost(", because nothing came");
      connect();
    }
  }, 5000);

  // --- colours

  const theme = document.querySelector(".theme");
  theme.hidden = false;
  theme.addEventListener("change", ({ target }) => {
    if (target.value === "auto") delete root.dataset.theme;
    else root.dataset.theme = target.value;
  });

  tick();
  setInterval(tick, slow.matches ? 1000 : 100);
  connect();
})();
