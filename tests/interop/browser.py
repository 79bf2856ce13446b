"""A page in headless Chromium, by its debugging pipe; the standard library alone.

    page = Page("file:///tmp/report.html")
    page.js("document.title"); page.key("ArrowRight"); page.errors(); page.close()
"""
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")
KEYS = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Enter": 13, "End": 35,
        "Home": 36, "Escape": 27, "Tab": 9}


def find():
    """The path of a browser, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    def __init__(self, url, dark=False, width=1200, height=900):
        self.folder = tempfile.mkdtemp()
        theirs_in, self.to = os.pipe()
        self.fro, theirs_out = os.pipe()
        # the browser reads descriptor 3 and writes 4
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash", find(),
             "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--remote-debugging-pipe", f"--user-data-dir={self.folder}",
             f"--window-size={width},{height}", "about:blank"],
            pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self.session, self.number, self.bytes, self.events = None, 0, b"", []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")
        if dark:
            self.call("Emulation.setEmulatedMedia",
                      features=[{"name": "prefers-color-scheme", "value": "dark"}])
        began = time.monotonic()
        self.call("Page.navigate", url=url)
        while not any(e["method"] == "Page.loadEventFired" for e in self.events):
            self.read()
        self.seconds = time.monotonic() - began

    def read(self):
        while b"\0" not in self.bytes:
            if not select.select([self.fro], [], [], 60)[0]:
                raise TimeoutError("the browser does not answer")
            piece = os.read(self.fro, 1 << 20)
            if not piece:
                raise EOFError("the browser ended")
            self.bytes += piece
        one, self.bytes = self.bytes.split(b"\0", 1)
        message = json.loads(one)
        if "method" in message:
            self.events.append(message)
        return message

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(answer["error"])
                return answer["result"]

    def js(self, text):
        got = self.call("Runtime.evaluate", expression=text, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in got:
            raise RuntimeError(got["exceptionDetails"])
        return got["result"].get("value")

    def key(self, key, times=1):
        one = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS.get(key, 0)}
        if key == "Enter":
            one["text"] = "\r"
        if len(key) == 1:
            one = {"key": key, "text": key}
        for _ in range(times):
            self.call("Input.dispatchKeyEvent", type="keyDown", **one)
            self.call("Input.dispatchKeyEvent", type="keyUp", **one)

    def errors(self):
        """What the console and the security policy complain of."""
        self.js("1")
        out = []
        for e in self.events:
            p = e["params"]
            if e["method"] == "Runtime.exceptionThrown":
                out.append(str(p["exceptionDetails"])[:400])
            if e["method"] == "Log.entryAdded" and p["entry"]["level"] in ("error", "warning"):
                out.append(p["entry"]["text"][:400])
            if e["method"] == "Runtime.consoleAPICalled" and p["type"] in ("error", "warning"):
                out.append(str(p["args"])[:400])
        return out

    def close(self):
        self.process.terminate()
        self.process.wait()
        os.close(self.to)
        os.close(self.fro)
        shutil.rmtree(self.folder, ignore_errors=True)
