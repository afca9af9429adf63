// Pages that are opened as files may start no worker, which search needs. There, a worker is a hidden frame of the same page.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = null;
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.early = [];
      document.body.appendChild(this.frame);
      const inside = this.frame.contentDocument;
      window.addEventListener("message", (event) => {
        if (event.source !== this.frame.contentWindow) return;
        this.dispatchEvent(new MessageEvent("message", {data: event.data}));
        if (this.onmessage) this.onmessage(event);
      });
      inside.open();
      inside.write("<script>postMessage = (data) => parent.postMessage(data, '*')<\/script>");
      const script = inside.createElement("script");
      script.src = url;
      script.onload = () => {
        const early = this.early;
        this.early = null;
        early.forEach((data) => this.postMessage(data));
      };
      inside.head.appendChild(script);
      inside.close();
    }
    postMessage(data) {
      if (this.early) {
        this.early.push(data);
        return;
      }
      // Not by the frame's postMessage, which the script inside has replaced.
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", {data, source: window}));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
