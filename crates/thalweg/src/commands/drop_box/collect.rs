//! `thalweg drop-box collect`: step 3, by `gather`.

use super::{Common, Here, status};
use crate::commands::{
    gather::{Display, Style, known, listen, reach, runtime},
    signals::Signals,
    text::{counted, say},
};
use anyhow::{Context as _, bail};
use serde_json::json;
use std::{
    fs,
    io::IsTerminal as _,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};
use thalweg_console::note;
use thalweg_net::channel::Connector;
use thalweg_node::{
    drop_box::{
        Collected, Line, Port, View,
        collect::{Settled, Source, settle, sources, sync, take_own},
    },
    gather::{
        EventSink, MethodName, Totals,
        landing::Layout,
        run::{Asked, Request, gather},
    },
};
use thalweg_wire::{
    Signer as _,
    bistro::{Answer, Ask, StampId},
    mesh::Name,
};
use tokio_util::sync::CancellationToken;

const HELP: &str = "\
Collects from wherever the receipts say, with all that `thalweg gather` does; each file is
checked against its commitment and gets its receipt beside: DIR/000017-return.pdf and
DIR/000017-return.pdf.receipt. The nodes are then told to throw their copies away. Interrupted,
the same command goes on; later it collects what has come since.

  thalweg drop-box collect taxes --into /srv/taxes

Exit codes: 0 all that nodes have is here; 1 something is not, and is named.";

/// Where data lands before it is checked, below the directory.
const LANDING: &str = ".collecting";

/// Ids in one question.
const AT_ONCE: usize = 1000;

/// Arguments of `thalweg drop-box collect`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The box
    #[arg(value_name = "BOX")]
    name: String,
    /// Where the files go
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
    /// How, as `thalweg gather --method`
    #[arg(long, value_name = "METHOD", default_value = "fluid")]
    method: MethodName,
    /// Only print what is to be collected, as NODE:PATH
    #[arg(long)]
    list: bool,
    /// Leave the nodes their copies
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    common: Common,
}

/// Runs the command.
///
/// # Errors
/// If nothing could be collected; the message says why.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let here = args.common.open(&args.name)?;
    if let Some(destination) = &here.settings.destination {
        bail!("box `{}` is `{destination}`'s: collect on that host", here.name);
    }
    let view = View::read(&here.files)?;
    let due = sources(&view);
    if args.list {
        return list(&due);
    }
    let runtime = runtime()?;
    let done = runtime.block_on(collect(&args, &here, &due));
    runtime.shutdown_background();
    let settled = done?;
    told(&args, &view, &settled)?;
    let all = settled.iter().all(|one| one.outcome.is_ok());
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn list(due: &[Source]) -> anyhow::Result<ExitCode> {
    let line = |node: &Name, path: &[u8]| format!("{node}:{}\n", String::from_utf8_lossy(path));
    let lines = due.iter().flat_map(|source| {
        source.arrivals.iter().map(|arrival| line(&source.node, &arrival.delivery.path))
    });
    say(&lines.collect::<String>())?;
    Ok(ExitCode::SUCCESS)
}

async fn collect(args: &Args, here: &Here, due: &[Source]) -> anyhow::Result<Vec<Settled>> {
    let landing = args.into.join(LANDING);
    let cannot = || format!("cannot make {}", landing.display());
    fs::create_dir_all(&landing).with_context(cannot)?;
    let me = here.state.mesh()?.name;
    let (own, others): (Vec<_>, Vec<_>) = due.iter().partition(|source| source.node == me);
    for arrival in own.iter().flat_map(|source| &source.arrivals) {
        take_own(arrival, &landing).context("cannot take what this node has itself")?;
    }
    if !others.is_empty() {
        fetch(args, here, &others, &landing).await?;
    }
    let arrivals = due.iter().flat_map(|source| &source.arrivals);
    let settled: Vec<_> = arrivals.map(|arrival| settle(arrival, &landing, &args.into)).collect();
    sync(&args.into).context("cannot make it durable")?;
    let numbers: Vec<u64> =
        settled.iter().filter(|one| one.outcome.is_ok()).map(|one| one.number).collect();
    let book = Collected::open(&here.files, here.state.node_key()?.id())?;
    book.note(&numbers).await.context("cannot note what was collected")?;
    if !args.keep {
        for source in due {
            forget(here, source, &numbers).await;
        }
    }
    // Empty, unless something did not match or is still under way.
    _ = fs::remove_dir(&landing);
    Ok(settled)
}

/// By `gather`.
async fn fetch(
    args: &Args,
    here: &Here,
    others: &[&Source],
    landing: &Path,
) -> anyhow::Result<Totals> {
    let style = match (args.common.json, std::io::stderr().is_terminal()) {
        (true, _) => Style::Quiet,
        (false, true) => Style::Bars,
        (false, false) => Style::Lines,
    };
    let display = Arc::new(Display::start("drop-box collect", style, false)?);
    let names: Vec<&str> = others.iter().map(|source| source.node.as_str()).collect();
    let hint = |text: String| display.note(text);
    let estimates = known::ask(&here.state, &args.common.place, &names, true, &hint).await;
    let asked = |source: &&Source| Asked { node: source.node.clone(), paths: source.paths() };
    let request = Request {
        exclude: vec![b"/part".to_vec()],
        layout: Some(Layout::Flat),
        estimates,
        method: args.method.clone(),
        ..Request::new(others.iter().map(asked).collect(), landing.to_owned())
    };
    let stop = CancellationToken::new();
    let signals = tokio::spawn(listen(Signals::watch()?, stop.clone()));
    let sink = display.clone() as Arc<dyn EventSink>;
    let ended = gather(request, reach(&here.state)?, sink, stop).await;
    signals.abort();
    display.finish();
    Ok(ended?)
}

/// Tells a node what it need not keep any more; it is asked again at the next collection.
async fn forget(here: &Here, source: &Source, numbers: &[u64]) {
    let is_here =
        |id: &&thalweg_node::drop_box::Arrival| numbers.contains(&id.stamp.value().number);
    let ids: Vec<StampId> = source.arrivals.iter().filter(is_here).map(|a| a.id()).collect();
    if ids.is_empty() {
        return;
    }
    let asked = async {
        let roster = here.state.membership()?.current().context("there is no roster")?;
        let port = roster.by_name(&source.node).and_then(Port::of).context("it is no member")?;
        let connector = Connector::new(&here.state.client_key()?)?;
        let mut line = Line::open(&connector, &port).await?;
        for some in ids.chunks(AT_ONCE) {
            match line.ask(&Ask::Forget(here.name.clone(), some.to_vec())).await? {
                Answer::Forgot(_) => {}
                Answer::Refused(refusal) => return Err(refusal.into()),
                _ => bail!("it answers something else"),
            }
        }
        line.close().await;
        Ok(())
    };
    if let Err(why) = asked.await {
        note!("thalweg: node {} keeps its copies: {why:#}", source.node);
    }
}

fn told(args: &Args, view: &View, settled: &[Settled]) -> anyhow::Result<()> {
    let failed = settled.iter().filter_map(|s| s.outcome.as_ref().err().map(|why| (s.number, why)));
    for (number, why) in failed.clone() {
        note!("thalweg: number {number}: {why}");
    }
    let (missing, done) =
        (view.missing().count() as u64, settled.len() as u64 - failed.clone().count() as u64);
    if args.common.json {
        let list: Vec<_> = failed.map(|(n, why)| json!({ "number": n, "why": why })).collect();
        let line = json!({ "collected": done, "failed": list, "without_data": missing });
        return say(&format!("{line}\n"));
    }
    let mut text =
        format!("{} collected into {}\n", counted(done, "submission"), args.into.display());
    if missing > 0 {
        text +=
            &format!("{} without data:\n{}", counted(missing, "commitment"), status::missing(view));
    }
    say(&text)
}
