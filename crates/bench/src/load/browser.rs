//! Headless Chromium, driven by its DevTools protocol over a pipe (`--remote-debugging-pipe`: JSON messages, each ended
//! by a zero byte).

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

/// The protocol uses descriptors 3 and 4.
const SCRIPT: &str =
    "log=$1; shift; exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>\"$log\"";

/// The most records of a trace that are kept: an hour of a busy page.
const MAX_TRACED: usize = 10_000_000;

/// The parts of a trace that tell what scripts cost.
const TRACED: &str = "devtools.timeline,v8,__metadata";

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
    /// The records of the trace in progress.
    traced: Vec<Value>,
    is_traced: bool,
}

impl Browser {
    /// Starts it by this shell: that of a host of the lab, or this machine's.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(mut shell: Command, dir: &Path) -> anyhow::Result<Self> {
        shell.env("HOME", dir).args(["-c", SCRIPT, "sh"]).arg(dir.join("chromium.log"));
        shell.args(OPTIONS).arg(format!("--user-data-dir={}", dir.join("profile").display()));
        shell.arg("about:blank").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = shell.spawn().context("cannot start chromium")?;
        let input = child.stdin.take().context("cannot write to chromium")?;
        let output = BufReader::new(child.stdout.take().context("cannot read from chromium")?);
        let (session, traced, is_traced) = Default::default();
        let mut browser = Self { child, input, output, number: 0, session, traced, is_traced };
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

    /// Sends the page to another address. Does not wait until it is loaded.
    ///
    /// # Errors
    /// When the browser has ended.
    pub fn go(&mut self, url: &str) -> anyhow::Result<()> {
        self.call("Page.navigate", &json!({ "url": url })).map(drop)
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

    /// Sets the page's size, px.
    ///
    /// # Errors
    /// When the browser has ended.
    pub fn resize(&mut self, width: u32, height: u32) -> anyhow::Result<()> {
        let params = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
        });
        self.call("Emulation.setDeviceMetricsOverride", &params).map(drop)
    }

    /// The bytes that the page's scripts hold, after everything else was freed; workers are not counted.
    ///
    /// # Errors
    /// When the browser has ended.
    pub fn heap(&mut self) -> anyhow::Result<f64> {
        self.call("HeapProfiler.collectGarbage", &json!({}))?;
        let usage = self.call("Runtime.getHeapUsage", &json!({}))?;
        usage["usedSize"].as_f64().context("chromium does not tell the heap's size")
    }

    /// The process ids of those that draw pages.
    ///
    /// # Errors
    /// When the browser has ended.
    pub fn renderers(&mut self) -> anyhow::Result<Vec<u32>> {
        let found = self.call_at(None, "SystemInfo.getProcessInfo", &json!({}))?;
        let all = found["processInfo"].as_array().cloned().unwrap_or_default();
        let ids = all
            .iter()
            .filter(|one| one["type"] == "renderer")
            .filter_map(|one| one["id"].as_u64().and_then(|id| u32::try_from(id).ok()));
        Ok(ids.collect())
    }

    /// Begins to record what all pages do.
    ///
    /// # Errors
    /// When the browser has ended.
    pub fn begin_trace(&mut self) -> anyhow::Result<()> {
        self.traced.clear();
        let params = json!({ "transferMode": "ReportEvents", "categories": TRACED });
        self.call_at(None, "Tracing.start", &params).map(drop)
    }

    /// Ends the record. Returns its events, as they are in the format of Chromium's traces.
    ///
    /// # Errors
    /// When the browser has ended.
    pub fn end_trace(&mut self) -> anyhow::Result<Vec<Value>> {
        self.is_traced = false;
        self.call_at(None, "Tracing.end", &json!({}))?;
        while !self.is_traced {
            let message = self.read()?;
            self.note(message);
        }
        Ok(std::mem::take(&mut self.traced))
    }

    /// Calls a method for the page, or for the browser before a page is open.
    fn call(&mut self, method: &str, params: &Value) -> anyhow::Result<Value> {
        self.call_at(self.session.clone(), method, params)
    }

    fn call_at(
        &mut self,
        session: Option<String>,
        method: &str,
        params: &Value,
    ) -> anyhow::Result<Value> {
        self.number += 1;
        let mut message = json!({ "id": self.number, "method": method, "params": params });
        if let Some(session) = session {
            message["sessionId"] = json!(session);
        }
        write!(self.input, "{message}\0").context("chromium has ended")?;
        loop {
            let mut answer = self.read()?;
            if answer["id"] == self.number {
                ensure!(answer["error"].is_null(), "{method}: {}", answer["error"]["message"]);
                return Ok(answer["result"].take());
            }
            self.note(answer);
        }
    }

    /// The next message.
    fn read(&mut self) -> anyhow::Result<Value> {
        let mut message = Vec::new();
        self.output.read_until(0, &mut message)?;
        ensure!(message.pop() == Some(0), "chromium has ended; its log says why (--logs)");
        Ok(serde_json::from_slice(&message)?)
    }

    /// Takes an event; those that do not belong to a trace are left out.
    fn note(&mut self, mut event: Value) {
        match event["method"].as_str() {
            Some("Tracing.dataCollected") => {
                if let Value::Array(records) = event["params"]["value"].take()
                    && self.traced.len() + records.len() <= MAX_TRACED
                {
                    self.traced.extend(records);
                }
            }
            Some("Tracing.tracingComplete") => self.is_traced = true,
            _ => {}
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
