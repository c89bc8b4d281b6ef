// Says so when the server is gone, and loads the page again when it is back.
(() => {
  const notice = document.getElementById("connection");
  const root = document.body.dataset.root;
  const two = (part) => String(part).padStart(2, "0");
  const clock = (moment) =>
    [moment.getHours(), moment.getMinutes(), moment.getSeconds()].map(two).join(":");
  const lost = () => {
    if (!notice.hidden) return;
    notice.textContent = `No connection since ${clock(new Date())}. What is shown is old; trying again…`;
    notice.hidden = false;
    const again = setInterval(async () => {
      try {
        const answer = await fetch(`${root}liveness`, { cache: "no-store" });
        if (!answer.ok) return;
        clearInterval(again);
        location.reload();
      } catch {
        // not yet
      }
    }, 2000);
  };
  const watch = () => {
    const found = window.Bokeh?.documents?.[0];
    if (!found) return setTimeout(watch, 100);
    found.on_event("connection_lost", lost);
  };
  watch();
})();
