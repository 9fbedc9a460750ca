//! Headless Chromium, driven by its DevTools protocol over a pipe (`--remote-debugging-pipe`: JSON messages, each ended
//! by a zero byte).

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Stdio},
};
use thalweg_lab::client::Lab;

/// The protocol uses descriptors 3 and 4.
const SCRIPT: &str =
    "log=$1; shift; exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>\"$log\"";

const OPTIONS: [&str; 11] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
    "--disable-background-timer-throttling",
    "--disable-renderer-backgrounding",
    "--autoplay-policy=no-user-gesture-required",
    "--remote-debugging-pipe",
];

/// A browser; ended on drop.
pub struct Browser {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    number: u64,
    /// The page's session of the protocol.
    session: Option<String>,
}

impl Browser {
    /// Starts it at a host.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(lab: &Lab, host: &str, dir: &Path) -> anyhow::Result<Self> {
        let mut command = lab.command(host, "sh");
        command.env("HOME", dir).args(["-c", SCRIPT, "sh"]).arg(dir.join("chromium.log"));
        command.args(OPTIONS).arg(format!("--user-data-dir={}", dir.join("profile").display()));
        command.arg("about:blank").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start chromium")?;
        let input = child.stdin.take().context("cannot write to chromium")?;
        let output = BufReader::new(child.stdout.take().context("cannot read from chromium")?);
        let mut browser = Self { child, input, output, number: 0, session: None };
        browser.call("Browser.getVersion", &json!({}))?;
        Ok(browser)
    }

    /// Opens a page, which further calls are for.
    ///
    /// # Errors
    /// When the browser has ended.
    pub fn open(&mut self, url: &str) -> anyhow::Result<()> {
        let target = self.call("Target.createTarget", &json!({ "url": url }))?;
        let params = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = self.call("Target.attachToTarget", &params)?;
        self.session = attached["sessionId"].as_str().map(str::to_owned);
        Ok(())
    }

    /// The value of an expression in the page.
    ///
    /// # Errors
    /// When the browser has ended, or the expression fails.
    pub fn evaluate(&mut self, expression: &str) -> anyhow::Result<Value> {
        let params = json!({ "expression": expression, "returnByValue": true });
        let mut answer = self.call("Runtime.evaluate", &params)?;
        let why = &answer["exceptionDetails"];
        ensure!(why.is_null(), "the page failed: {}", why["exception"]["description"]);
        Ok(answer["result"]["value"].take())
    }

    fn call(&mut self, method: &str, params: &Value) -> anyhow::Result<Value> {
        self.number += 1;
        let mut message = json!({ "id": self.number, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        write!(self.input, "{message}\0").context("chromium has ended")?;
        loop {
            let mut answer = Vec::new();
            self.output.read_until(0, &mut answer)?;
            ensure!(answer.pop() == Some(0), "chromium has ended; its log says why (--logs)");
            let mut answer: Value = serde_json::from_slice(&answer)?;
            if answer["id"] == self.number {
                ensure!(answer["error"].is_null(), "{method}: {}", answer["error"]["message"]);
                return Ok(answer["result"].take());
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended already.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
