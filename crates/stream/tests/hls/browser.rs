//! Headless Chromium, told what to do by its own protocol over a pipe (`--remote-debugging-pipe`: messages of JSON, each
//! ended by a zero byte).

use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

/// A browser with one page; ended on drop.
pub struct Browser {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    session: Option<String>,
    next: u64,
    /// Uncaught exceptions and messages of the console's error level.
    pub errors: Vec<String>,
}

impl Browser {
    /// Starts a browser with its profile in `dir`; `None` without one, with a line that says so.
    pub fn start(dir: &Path) -> Option<Self> {
        let found = Command::new("chromium").arg("--version").stdout(Stdio::null()).status();
        if !found.is_ok_and(|status| status.success()) {
            eprintln!("skipped: no chromium in the path");
            return None;
        }
        // Its protocol is on descriptors 3 and 4.
        let script = "exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>\"$LOG\"";
        let mut child = Command::new("sh")
            .args(["-c", script, "sh", "--headless=new", "--no-sandbox", "--disable-gpu"])
            .args(["--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking"])
            .args(["--disable-sync", "--mute-audio", "--remote-debugging-pipe"])
            .args(["--window-size=1100,1000", "--autoplay-policy=no-user-gesture-required"])
            .arg(format!("--user-data-dir={}", dir.join("profile").display()))
            .arg("about:blank")
            .env("HOME", dir)
            .env("LOG", dir.join("chromium.log"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (session, errors) = (None, Vec::new());
        Some(Self { child, input, output, session, next: 0, errors })
    }

    /// Opens a page.
    pub fn open(&mut self, url: &str) {
        let target = self.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = self.call("Target.attachToTarget", attach);
        self.session = Some(session["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Runtime.enable", "Log.enable", "Page.enable"] {
            self.call(domain, json!({}));
        }
        self.call("Page.navigate", json!({ "url": url }));
    }

    /// The value of an expression in the page.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let expression = json!({ "expression": expression, "returnByValue": true });
        self.call("Runtime.evaluate", expression)["result"]["value"].clone()
    }

    /// Shows the page in a colour scheme, and writes a picture of it.
    pub fn screenshot(&mut self, scheme: &str, file: &Path) {
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.call("Emulation.setEmulatedMedia", json!({ "features": [feature] }));
        let picture = self.call("Page.captureScreenshot", json!({ "captureBeyondViewport": true }));
        let bytes = data_encoding::BASE64.decode(picture["data"].as_str().unwrap().as_bytes());
        fs::write(file, bytes.unwrap()).unwrap();
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let mut message = json!({ "id": self.next, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        write!(self.input, "{message}\0").unwrap();
        loop {
            let mut answer = Vec::new();
            self.output.read_until(0, &mut answer).unwrap();
            assert_eq!(answer.pop(), Some(0), "the browser ended");
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            if answer["id"] == self.next {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.collect(&answer);
        }
    }

    fn collect(&mut self, event: &Value) {
        let params = &event["params"];
        match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => self.errors.push(params.to_string()),
            // The page itself handles answers of the network.
            Some("Log.entryAdded")
                if params["entry"]["level"] == "error"
                    && params["entry"]["source"] != "network" =>
            {
                self.errors.push(params["entry"].to_string());
            }
            _ => {}
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
