//! The page of a node that knows a large mesh, in headless Chromium.
//!
//! ```text
//! chromium ── [::1]:P ── counter ── 127.0.0.1:P ── the node's API ─┬─ paths: a replayed mesh
//!                                                                   └─ jobs: replayed commands, and real downloads
//! ```
//!
//! The API and the page are the node's own; [`replay`] stands in for the oracle's answers and for commands. The results
//! of `--rounds 0` (the default):
//!
//! - `first_paint`, `shown`: from the request for the page to the first text, and to the matrix, ms;
//! - `script_median`, `script_worst`: the page's scripting time an update, ms ([`trace`]), while the matrix is shown;
//! - `heap`: what the page's scripts hold after a collection; `memory`: the page's process, with its worker;
//! - `first_bytes`, `bytes_per_second`: what the browser gets until the matrix is shown, and later.
//!
//! With `--rounds N`: the rates of a download that the node runs, from a server with 500 Mbit/s ([`paced_server`]), with
//! the page open and closed in turn.

mod counter;
mod paced_server;
mod replay;
mod replay_node;
mod trace;

use super::{browser::Browser, process::memory_mib, report::Report};
use anyhow::{Context as _, ensure};
use counter::Counter;
use paced_server::PacedServer;
use replay_node::ReplayNode;
use serde_json::Value;
use std::{
    num::NonZeroUsize,
    process::Command,
    time::{Duration, Instant},
};
use thalweg_units::Rate;
use tokio::{task::block_in_place, time::sleep};

/// The longest time until the page is shown.
const PATIENCE: Duration = Duration::from_secs(120);

/// The fewest updates that count as a measurement.
const MIN_UPDATES: usize = 10;

/// The pause after the page has opened, before a download.
const SETTLE: Duration = Duration::from_secs(3);

/// The window of the page, px.
const WINDOW: (u32, u32) = (1440, 900);

/// Arguments of `thalweg-bench load console-scale`.
#[derive(clap::Args)]
pub struct Args {
    /// Number of nodes
    #[arg(long, default_value = "300")]
    nodes: NonZeroUsize,
    /// Measured legs that change in a second
    #[arg(long, default_value_t = 100)]
    changes: usize,
    /// Commands whose progress is replayed
    #[arg(long, default_value_t = 20)]
    jobs: u32,
    /// How long the page is watched, s
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Downloads with the page open and closed each, instead of watching the page
    #[arg(long, default_value_t = 0)]
    rounds: usize,
    /// Rate of the server
    #[arg(long, default_value = "500 Mbit/s")]
    rate: Rate,
    /// Size of a download, bytes
    #[arg(long, default_value_t = 500_000_000)]
    size: u64,
    /// The seed of the mesh
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Opens the page and prints the report.
///
/// # Errors
/// When the node or the browser does not start, or the page shows nothing.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let node = ReplayNode::start(args).await?;
    let mut report = Report::default();
    match args.rounds {
        0 => watch(args, &node, &mut report).await?,
        rounds => download(args, rounds, &node, &mut report).await?,
    }
    node.end().await?;
    report.print()?;
    Ok(())
}

/// The page in a browser of its own, behind a counter of its bytes.
struct OpenPage {
    browser: Browser,
    counter: Counter,
    _directory: tempfile::TempDir,
}

impl OpenPage {
    /// Opens the page at the matrix. Blocks until the browser has begun to load it.
    async fn open(node: &ReplayNode) -> anyhow::Result<Self> {
        let counter = Counter::start(node.page_address()).await?;
        let link = node.client.page_link().await?.url;
        let path = link.split_once("/enter").context("the link has no code")?.1;
        // The browser keeps the fragment when it is sent on to the page.
        let url = format!("http://[::1]:{}/enter{path}#/paths", counter.port());
        let directory = tempfile::tempdir()?;
        let browser = block_in_place(|| {
            let mut browser = Browser::start(Command::new("sh"), directory.path())?;
            browser.open("about:blank")?;
            browser.resize(WINDOW.0, WINDOW.1)?;
            browser.go(&url)?;
            anyhow::Ok(browser)
        })?;
        Ok(Self { browser, counter, _directory: directory })
    }

    fn evaluate(&mut self, expression: &str) -> anyhow::Result<Value> {
        block_in_place(|| self.browser.evaluate(expression))
    }

    /// Waits until the matrix is drawn. Returns the time since the request for the page, ms.
    async fn shown(&mut self) -> anyhow::Result<f64> {
        let began = Instant::now();
        let drawn =
            "document.querySelector('.matrix-view canvas')?.width ? performance.now() : null";
        loop {
            // While the page is being loaded there may be no document.
            if let Ok(Value::Number(at)) = self.evaluate(drawn) {
                return at.as_f64().context("no time");
            }
            if began.elapsed() > PATIENCE {
                let text = self.evaluate("document.body.innerText")?;
                anyhow::bail!("the page does not show the matrix: {text}");
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Watches the open page for some time.
async fn watch(args: &Args, node: &ReplayNode, report: &mut Report) -> anyhow::Result<()> {
    let mut page = OpenPage::open(node).await?;
    let shown = page.shown().await?;
    let first_paint = page
        .evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null")?;
    let first_bytes = page.counter.bytes();
    sleep(SETTLE).await;
    let (before, began) = (page.counter.bytes(), Instant::now());
    block_in_place(|| page.browser.begin_trace())?;
    sleep(Duration::from_secs(args.seconds)).await;
    let bytes = page.counter.bytes() - before;
    let records = block_in_place(|| page.browser.end_trace())?;
    let took = began.elapsed().as_secs_f64();
    let heap = block_in_place(|| page.browser.heap())?;
    let renderers = block_in_place(|| page.browser.renderers())?;
    let memory = renderers.iter().filter_map(|pid| memory_mib(*pid, "VmRSS").ok());
    let memory = memory.fold(f64::NAN, f64::max);
    let mut updates = trace::updates(&records);
    ensure!(updates.len() >= MIN_UPDATES, "the page was updated only {} times", updates.len());
    updates.sort_by(f64::total_cmp);
    report.add("first_paint", "ms", first_paint.as_f64().unwrap_or(f64::NAN));
    report.add("shown", "ms", shown);
    report.add("updates", "", updates.len() as f64);
    report.add("script_median", "ms", updates[updates.len() / 2]);
    report.add("script_worst", "ms", updates[updates.len() - 1]);
    report.add("script_share", "%", updates.iter().sum::<f64>() / took / 10.0);
    report.add("heap", "MB", heap / 1e6);
    report.add("memory", "MB", memory * 1.048576);
    report.add("first_bytes", "kB", first_bytes as f64 / 1e3);
    report.add("bytes_per_second", "kB/s", bytes as f64 / took / 1e3);
    Ok(())
}

/// Downloads with the page open and closed in turn; which of both is first changes from round to round.
async fn download(
    args: &Args,
    rounds: usize,
    node: &ReplayNode,
    report: &mut Report,
) -> anyhow::Result<()> {
    let server = PacedServer::start(args.size, args.rate)?;
    // The first download also reads the program from the disk.
    node.download(&server, rounds * 2).await?;
    let mut rates = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        for turn in 0..2 {
            let is_open = (round + turn) % 2 == 0;
            let page = match is_open {
                true => Some(open_and_settle(node).await?),
                false => None,
            };
            let rate = node.download(&server, round * 2 + turn).await?;
            thalweg_console::note!("round {round}, page open: {is_open}: {:.2} Mbit/s", rate / 1e6);
            rates[usize::from(is_open)].push(rate);
            drop(page);
        }
    }
    let [closed, open] = rates.map(median);
    report.add("closed", "Mbit/s", closed / 1e6);
    report.add("open", "Mbit/s", open / 1e6);
    report.add("loss", "%", 100.0 * (1.0 - open / closed));
    Ok(())
}

async fn open_and_settle(node: &ReplayNode) -> anyhow::Result<OpenPage> {
    let mut page = OpenPage::open(node).await?;
    page.shown().await?;
    sleep(SETTLE).await;
    Ok(page)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
