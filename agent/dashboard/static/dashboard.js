// Live updates and keys. Nothing here decides anything: without it every page still works, and is renewed by hand.
"use strict";

(function () {
  var body = document.body;
  var stream = document.getElementById("stream");
  var mark = body.dataset.mark || "";
  var source = null;
  var owed = false;

  function typing() {
    var at = document.activeElement;
    return Boolean(at && /^(INPUT|SELECT|TEXTAREA)$/.test(at.tagName) && at.closest(".live"));
  }

  // A form that somebody fills in is not replaced under their hands.
  function renew() {
    owed = typing();
    if (owed) return;
    if (document.querySelector("[data-reload]")) location.reload();
    else window.htmx.trigger(body, "news");
  }

  function say(text, live) {
    stream.textContent = text;
    stream.classList.toggle("on", live);
  }

  function listen() {
    if (source || document.hidden) return;
    source = new EventSource(body.dataset.events);
    source.addEventListener("open", function () { say("live", true); });
    source.addEventListener("error", function () {
      say("not live", false);
      if (source && source.readyState === EventSource.CLOSED) {
        source = null;
        setTimeout(listen, 5000);
      }
    });
    source.addEventListener("news", function (event) {
      var now = JSON.parse(event.data).mark;
      if (now !== mark) {
        mark = now;
        renew();
      }
    });
  }

  // A browser opens few connections to one server: a page that nobody sees gives its own back.
  function mute() {
    if (source) source.close();
    source = null;
    say("not live", false);
  }

  if (body.dataset.events && stream) {
    listen();
    document.addEventListener("visibilitychange", function () { document.hidden ? mute() : listen(); });
    window.addEventListener("pagehide", mute);
    window.addEventListener("pageshow", listen);
    document.addEventListener("focusout", function () { setTimeout(function () { if (owed) renew(); }, 0); });
  }

  var dialog = document.getElementById("keys");
  var button = document.getElementById("keys-button");
  if (button) button.addEventListener("click", function () { dialog.showModal(); });

  function step(by) {
    var rows = Array.from(document.querySelectorAll("a.row"));
    if (!rows.length) return;
    var at = rows.indexOf(document.activeElement);
    var next = at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by));
    rows[next].focus();
  }

  var began = 0;
  document.addEventListener("keydown", function (event) {
    var at = event.target;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (at.isContentEditable || /^(INPUT|SELECT|TEXTAREA)$/.test(at.tagName)) return;
    var moves = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 };
    if (at.matches("a.row") && event.key in moves) { step(moves[event.key]); event.preventDefault(); return; }
    if (event.key === "g") { began = event.timeStamp; return; }
    if (event.timeStamp - began > 1500 || event.key === "Shift") return;
    began = 0;
    if (event.key === "?") { if (dialog) dialog.showModal(); event.preventDefault(); return; }
    if (event.key === "r") { step(1); event.preventDefault(); return; }
    var link = document.querySelector('nav a[data-key="' + CSS.escape(event.key) + '"]');
    if (link) { event.preventDefault(); link.click(); }
  });
})();
