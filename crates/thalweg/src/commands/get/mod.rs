//! `thalweg get`: runs the command, from arguments to exit code.

mod allowed;
mod args;
mod bonds;
mod bound;
mod candidate_query;
mod credentials;
mod display;
mod download_session;
pub mod duration;
mod exit;
pub mod mesh;
mod relays;
mod renewal;
mod request_builder;
mod sources;
mod streams;

pub use args::{Args, Drawing};

use super::{
    bond_options::deadline_overrun, history_file, host::quoted, signals::Signals, text::rough,
    uplinks,
};
use candidate_query::CandidateQuery;
use display::{Display, Note};
use download_session::DownloadSession;
use exit::Code;
use parking_lot::Mutex;
use renewal::Renewal;
use request_builder::RequestBuilder;
use sources::{Fallback, Fetched, FoundItems, Item, ItemKind, Wanted};
use std::{
    collections::BTreeSet,
    path::Path,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use streams::Buffer;
use thalweg_get::{Stop, Target, get};
use thalweg_paths::{
    detours::Detours,
    history::{History, QUARANTINE},
    url::HttpUrl,
};
use thalweg_units::WallTime;
use thalweg_wire::metalink;
use tokio::{
    runtime::{Builder, Runtime},
    sync::watch,
};

/// Runs the command.
///
/// # Errors
/// If threads cannot be created. Failures of downloads are printed here and end with the exit code that the help names.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let display = Display::start(args.style())?;
    let renewal = renew(&args);
    let asking = ask(&args);
    let runtime = runtime()?;
    let code = match runtime.block_on(downloads(&args, &display)) {
        Ok(code) => code,
        Err(mistake) => Some(refuse(&display, format!("{mistake:#}"), Code::Usage)),
    };
    // A pending name lookup may hang; it is not waited for.
    runtime.shutdown_background();
    uplinks::end();
    display.finish();
    renewal.finish();
    if code.is_none() {
        asking.finish();
    }
    Ok(code.unwrap_or(Code::Done).into())
}

/// The network runs on this thread, the disk on others. A small file passes through several tasks; waking another
/// thread for each costs more than the work in them, and a single core receives faster than disks write.
fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Reports why no download is started.
fn refuse(display: &Display, why: String, code: Code) -> Code {
    let (url, hints) = (String::new(), Vec::new());
    display.tell(Note::Failed { item: 0, url, why, code, kept: 0, hints });
    code
}

/// Starts to fetch a newer roster, if the mesh may be used and no daemon keeps the roster new.
fn renew(args: &Args) -> Renewal {
    let names = args.paths.named();
    match args.paths.tries_mesh() || names.iter().any(|name| !name.contains(':')) {
        true => Renewal::start(args.paths.state_dir.open(), &names, &args.paths.avoid),
        false => Renewal::none(),
    }
}

/// Asks the oracle for candidates, if relays of the mesh are tried.
fn ask(args: &Args) -> CandidateQuery {
    let paths = &args.paths;
    if !paths.tries_mesh() {
        return CandidateQuery::none();
    }
    let file = history_file::file(paths.history.as_deref(), &paths.state_dir);
    CandidateQuery::start(paths.state_dir.open(), file.as_deref())
}

/// Runs all downloads. An error is a mistake in the arguments.
async fn downloads(args: &Args, display: &Display) -> anyhow::Result<Option<Code>> {
    args.check()?;
    let memory = history_file::file(args.paths.history.as_deref(), &args.paths.state_dir);
    let began = history_file::now();
    let history = memory.as_deref().map(|file| Mutex::new(History::open(file)));
    let detours = memory.as_deref().map(|file| Mutex::new(Detours::open(&Detours::beside(file))));
    let note = |text| display.tell(Note::Text(text));
    let maker = RequestBuilder::new(args, history.as_ref(), detours.as_ref(), &note)?;
    if let Err(e) = args.naming.make_directory() {
        return Ok(Some(refuse(display, format!("{e:#}"), Code::Disk)));
    }
    let (stop_request, stop) = Stop::new();
    let late = Arc::new(AtomicBool::new(false));
    let signals = tokio::spawn(listen(Signals::watch()?, stop_request.clone()));
    let clock = args
        .effort
        .max_time
        .map(|t| tokio::spawn(end_after(t, stop_request.clone(), late.clone())));

    let fetch = |url: &str| -> std::pin::Pin<Box<dyn Future<Output = Fetched> + '_>> {
        Box::pin(document(&maker, url.to_owned(), stop.clone()))
    };
    let FoundItems { items, notes } = sources::find(args, &fetch).await?;
    notes.into_iter().for_each(note);
    withheld(&maker, &items).map(note);
    display.tell(Note::Planned { count: items.len() });
    let calls = DownloadSession {
        maker: &maker,
        effort: &args.effort,
        display,
        history: history.as_ref(),
        detours: detours.as_ref(),
        verbose: args.verbose,
        stop_request,
        stop: stop.clone(),
        late: &late,
        in_turn: args.naming.is_stdout(),
    };
    let started = Instant::now();
    let code = calls.run(items).await;
    deadline_overrun(args.effort.within, started).filter(|_| code.is_none()).map(note);
    signals.abort();
    clock.inspect(|clock| clock.abort());
    if let (Some(history), Some(file)) = (&history, &memory) {
        note_quarantines(history, began, args, &note);
        save(history, file, &note);
    }
    detours.iter().for_each(|detours| save_detours(detours, &note));
    Ok(code)
}

/// Names the servers that get no login, because the user did not choose them.
fn withheld(maker: &RequestBuilder<'_>, items: &[Item]) -> Option<String> {
    let wanted = items.iter().filter_map(|item| match &item.kind {
        ItemKind::Wanted(wanted) if !wanted.is_trusted() => maker.withholds_login(wanted),
        _ => None,
    });
    let origins: BTreeSet<String> = wanted.collect();
    let first = origins.first()?;
    let more = match origins.len() - 1 {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    Some(format!(
        "no login is sent to {first}{more}, which a fetched Metalink names: logins of a netrc file \
         are sent to its hosts only over https, and -u and -H only to the origin of the Metalink"
    ))
}

/// Names the relays that this command put into quarantine, and how the user can lift it.
fn note_quarantines(history: &Mutex<History>, began: WallTime, args: &Args, note: &dyn Fn(String)) {
    let history = history.lock();
    let same = history_file::argument(args.paths.history.as_deref(), &args.paths.state_dir);
    let blames = history.quarantined(history_file::now());
    for blame in blames.iter().filter(|blame| blame.since >= began) {
        let (relay, origin) = (&blame.relay, &blame.origin);
        note(format!(
            "relay {relay} is left out for {origin} for {}, unless --via names it; \
             `thalweg history{same}` shows it, `thalweg history lift {}{same}` ends it",
            rough(QUARANTINE),
            quoted(relay)
        ));
    }
}

/// Saves the history. It is only a hint for later downloads, so a failure is only noted.
fn save(history: &Mutex<History>, file: &Path, note: &dyn Fn(String)) {
    let mut history = history.lock();
    history.problem().map(str::to_owned).map(note);
    if let Err(e) = history_file::save(&mut history, file) {
        note(format!(
            "cannot save the history of paths: {e} (choose a file with --history \
                      FILE, or `--history none`)"
        ));
    }
}

/// As [`save`], for what was learnt about relays; the history's directory exists by now.
fn save_detours(detours: &Mutex<Detours>, note: &dyn Fn(String)) {
    let mut detours = detours.lock();
    detours.problem().map(str::to_owned).map(note);
    if let Err(e) = detours.save() {
        note(format!(
            "cannot save the history of relays: {e} (choose a file with --history \
                      FILE, or `--history none`)"
        ));
    }
}

/// Fetches a Metalink into memory.
async fn document(maker: &RequestBuilder<'_>, url: String, stop: Stop) -> Fetched {
    let parsed = HttpUrl::parse(&url).map_err(|e| (e.to_string(), Code::Usage))?;
    let buffer = Arc::new(Buffer::new(metalink::MAX_BYTES));
    let output = args::Output::Stdout;
    let (mirrors, digests) = (Vec::new(), Vec::new());
    let (pieces, size, named_by, fallback) = (None, None, None, Fallback::default());
    let wanted = Wanted { url: parsed, mirrors, digests, pieces, output, size, named_by, fallback };
    let request = maker.document(&wanted, Target::Output(buffer.clone()));
    match get(request, &(), stop).await {
        Ok(_) => Ok(buffer.take()),
        Err(failed) => {
            Err((format!("the Metalink {url}: {failed}"), Code::of_error(&failed.error)))
        }
    }
}

/// Waits for signals: the first Ctrl-C or SIGTERM ends the downloads in order, the second one at once.
async fn listen(mut signals: Signals, stop_request: watch::Sender<bool>) {
    loop {
        signals.next().await;
        if stop_request.send_replace(true) {
            std::process::exit(thalweg_console::INTERRUPTED.into());
        }
    }
}

async fn end_after(time: Duration, stop_request: watch::Sender<bool>, late: Arc<AtomicBool>) {
    tokio::time::sleep(time).await;
    late.store(true, Ordering::SeqCst);
    stop_request.send_replace(true);
}
