//! `thalweg drop-box collect`: fetches the submissions with `gather` (step 3 of a submission).

use super::{BoxArgs, OpenBox, clear, failures::FailureRecorder, status};
use crate::commands::{
    exit::Code,
    gather::{GatherDisplay, dialer, leg_estimates, runtime, stop_on_signals},
    screen::Style,
    signals::Signals,
    text::{counted, printable, say},
};
use anyhow::{Context as _, bail};
use serde_json::json;
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    io::ErrorKind,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};
use thalweg_console::note;
use thalweg_dropbox::{
    BoxKey, Collected, VerifiedReceipt, View,
    collect::{
        CollectionLock, Source, SubmissionResult, copy_own_data, next_sources, replace_results,
        settle, sources, sync,
    },
};
use thalweg_gather::{
    MethodName,
    landing::Layout,
    run::{Request, SourceRequest, gather},
};
use thalweg_wire::{Signer as _, mesh::Name};
use tokio_util::sync::CancellationToken;

const HELP: &str = "\
Collects the submissions from the nodes that hold them, as `thalweg gather` does. Each file is
checked against its commitment, decrypted, and stored with its receipt: DIR/000017-return.pdf and
DIR/000017-return.pdf.receipt. The nodes then delete their copies; a node that is not reached does
so at the next collection. The same command continues an interrupted collection, and later
collects what has arrived since.

  thalweg drop-box collect taxes --into /srv/taxes

Exit codes: 0 everything that nodes hold is here; 1 something is missing and listed; 7 another
collection of this box or into this directory runs.";

/// The subdirectory for data that is not checked yet.
const LANDING: &str = ".collecting";

/// Arguments of `thalweg drop-box collect`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The box
    #[arg(value_name = "BOX")]
    name: String,
    /// The directory for the files
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
    /// The method, as for `thalweg gather --method`
    #[arg(long, value_name = "METHOD", default_value = "fluid")]
    method: MethodName,
    /// Only list what would be collected, as NODE:PATH
    #[arg(long)]
    list: bool,
    /// Do not let the nodes delete their copies
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    common: BoxArgs,
}

/// Runs the command.
///
/// # Errors
/// If nothing could be collected; the message says why.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let open_box = args.common.open(&args.name)?;
    if let Some(destination) = &open_box.settings.destination {
        bail!(
            "the destination of box `{}` is `{destination}`: collect on that host",
            open_box.name
        );
    }
    if args.list {
        return list(&sources(&View::read(&open_box.files)?));
    }
    let into = &args.into;
    fs::create_dir_all(into).with_context(|| format!("cannot create {}", printable(into)))?;
    let _alone = match CollectionLock::take(&open_box.files, into) {
        Err(e) if e.kind() == ErrorKind::WouldBlock => {
            note!("thalweg: {e}; wait until it has ended");
            return Ok(Code::Busy.into());
        }
        taken => taken.context("cannot start a collection (has this box's node ever run?)")?,
    };
    let view = View::read(&open_box.files)?;
    let runtime = runtime()?;
    let done = runtime.block_on(collect(&args, &open_box, &view));
    runtime.shutdown_background();
    let settled = done?;
    report(&args, &view, &settled)?;
    let all = settled.iter().all(|one| one.outcome.is_ok());
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn list(due: &[Source]) -> anyhow::Result<ExitCode> {
    let line = |node: &Name, path: &[u8]| {
        format!("{node}:{}\n", printable(Path::new(OsStr::from_bytes(path))))
    };
    let lines = due.iter().flat_map(|source| {
        source.arrivals.iter().map(|arrival| line(&source.node, &arrival.delivery.path))
    });
    say(&lines.collect::<String>())?;
    Ok(ExitCode::SUCCESS)
}

async fn collect(
    args: &Args,
    open_box: &OpenBox,
    view: &View,
) -> anyhow::Result<Vec<SubmissionResult>> {
    let landing = args.into.join(LANDING);
    let cannot = || format!("cannot create {}", printable(&landing));
    fs::create_dir_all(&landing).with_context(cannot)?;
    let settled = collect_from_all(args, open_box, view, &landing).await?;
    sync(&args.into).with_context(|| format!("cannot sync {} to disk", printable(&args.into)))?;
    let numbers: Vec<u64> =
        settled.iter().filter(|one| one.outcome.is_ok()).map(|one| one.number).collect();
    let book = Collected::open(&open_box.files, open_box.state.node_key()?.id())?;
    book.note(&numbers).await.context("cannot record what was collected")?;
    if !args.keep {
        clear::delete_copies(open_box, &book).await?;
    }
    // Fails, as intended, if something did not match or is still incomplete: then the directory is not empty.
    _ = fs::remove_dir(&landing);
    Ok(settled)
}

/// Fetches each submission from the first node that has it, or else from the next one.
async fn collect_from_all(
    args: &Args,
    open_box: &OpenBox,
    view: &View,
    landing: &Path,
) -> anyhow::Result<Vec<SubmissionResult>> {
    let (mut settled, mut asked) = (Vec::new(), 0);
    let mut due = sources(view);
    while !due.is_empty() {
        let (came, stopped) = collect_from(args, open_box, &due, landing).await?;
        match asked {
            0 => settled = came,
            _ => replace_results(&mut settled, came),
        }
        if stopped {
            break;
        }
        asked += 1;
        due = next_sources(view, &settled, asked);
        if !due.is_empty() {
            let count: usize = due.iter().map(|source| source.arrivals.len()).sum();
            let what = counted(count as u64, "submission");
            note!("thalweg: {what} not received: asking the next node that has each");
        }
    }
    Ok(settled)
}

/// Fetches these submissions. Returns the result of each, and whether the user interrupted it.
async fn collect_from(
    args: &Args,
    open_box: &OpenBox,
    due: &[Source],
    landing: &Path,
) -> anyhow::Result<(Vec<SubmissionResult>, bool)> {
    let me = open_box.state.mesh()?.name;
    let (own, others): (Vec<_>, Vec<_>) = due.iter().partition(|source| source.node == me);
    let take = |arrival: &VerifiedReceipt| {
        let failed = copy_own_data(arrival, landing).err()?;
        Some((arrival.stamp.value().number, failed.to_string()))
    };
    let unable: BTreeMap<u64, String> =
        own.iter().flat_map(|source| &source.arrivals).filter_map(take).collect();
    let stop = CancellationToken::new();
    let recorder = match others.is_empty() {
        true => None,
        false => Some(fetch(args, open_box, &others, landing, &stop).await?),
    };
    let key = BoxKey::of(&open_box.state.node_key()?, &open_box.name)?;
    let arrivals = due.iter().flat_map(|source| &source.arrivals);
    let mut settled: Vec<_> =
        arrivals.map(|arrival| settle(arrival, landing, &args.into, &key)).collect();
    if let Some(recorder) = recorder {
        recorder.explain(&mut settled, due);
    }
    for one in &mut settled {
        if let (Err(text), Some(why)) = (&mut one.outcome, unable.get(&one.number)) {
            *text = format!("{text}, which is this node: {why}");
        }
    }
    Ok((settled, stop.is_cancelled()))
}

/// Fetches from other nodes with `gather`.
async fn fetch(
    args: &Args,
    open_box: &OpenBox,
    others: &[&Source],
    landing: &Path,
    stop: &CancellationToken,
) -> anyhow::Result<Arc<FailureRecorder>> {
    // The JSON result is printed at the end.
    let style = Style::choose(false, args.common.json);
    let display = Arc::new(GatherDisplay::start(style, false)?);
    let names: Vec<&str> = others.iter().map(|source| source.node.as_str()).collect();
    let hint = |text: String| display.note(text);
    let estimates =
        leg_estimates::ask(&open_box.state, &args.common.state_dir, &names, true, &hint).await;
    let asked =
        |source: &&Source| SourceRequest { node: source.node.clone(), paths: source.paths() };
    let request = Request {
        exclude: vec![b"/part".to_vec()],
        layout: Some(Layout::Flat),
        estimates,
        method: args.method,
        ..Request::new(others.iter().map(asked).collect(), landing.to_owned())
    };
    let note_display = Arc::clone(&display);
    let signals =
        stop_on_signals(Signals::watch()?, stop.clone(), move |text| note_display.note(text));
    let signals = tokio::spawn(signals);
    let recorder = Arc::new(FailureRecorder::new(display.clone()));
    let ended = gather(request, dialer(&open_box.state)?, recorder.clone(), stop.clone()).await;
    signals.abort();
    // What has arrived is kept nevertheless.
    if let Err(error) = ended {
        recorder.record_end(error.to_string());
    }
    display.finish();
    Ok(recorder)
}

fn report(args: &Args, view: &View, settled: &[SubmissionResult]) -> anyhow::Result<()> {
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
        format!("{} collected into {}\n", counted(done, "submission"), printable(&args.into));
    if missing > 0 {
        text +=
            &format!("{} without data:\n{}", counted(missing, "commitment"), status::missing(view));
    }
    say(&text)
}
