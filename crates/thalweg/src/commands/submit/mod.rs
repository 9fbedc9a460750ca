//! `thalweg submit`: commits to files before a deadline, and pushes their data to a node.

mod client;
mod dry_run;
mod named_files;
mod progress;
mod retry;
mod submission;
mod upload;

use super::{
    gather::stop_on_signals,
    host::{self, StateDir},
    jobs::QueueOptions,
    local_files,
    signals::Signals,
    text::{printable, say},
};
use anyhow::{Context as _, bail};
use client::{ClientIdentity, ClientMesh};
use named_files::{NamedFiles, NotSubmitted};
use serde_json::json;
use std::{cell::Cell, path::PathBuf, process::ExitCode};
pub use submission::commitment;
use submission::{Step, Submission};
use thalweg_base::sample::FailureSample;
use thalweg_console::{INTERRUPTED, note};
use thalweg_dropbox::{ClientError, NodeChannel, Target};
use thalweg_net::channel::Connector;
use thalweg_wire::{
    Signed, Signer as _,
    bistro::{Intent, MOST_INTENTS, Refusal, Stamp},
};
use tokio_util::sync::CancellationToken;

const HELP: &str = "\
First the box's node time-stamps and signs a commitment to each file (its size and a hidden hash);
this takes a moment and must happen before the deadline. Then the data, encrypted to the box's own
key, is sent to the nearest idle node of the box, which returns a receipt. The commitment and the
receipt are stored in FILE.receipt, which anybody can check with `thalweg receipt verify`. The same
command continues an interrupted submission.

  thalweg submit return.pdf --to taxes@irs
  thalweg submit *.pdf --to taxes@irs.example:7373#KEY      # without being a member of the mesh
  thalweg submit * --to taxes@irs --dry-run                 # only report what would fail

The file must not change until its data has been received. FILE.receipt holds secrets: leave the
lines `nonce`, `blake3` and `keys` out of copies for others to check. A file that cannot be
submitted is named, and the others are submitted. Receipts of this drop box are skipped.

Exit codes: 0 all files have receipts; 3 some were too late; 4 all commitments are signed, but some
data has not been received (run it again); 130 interrupted; 1 anything else.";

/// The exit code if some commitments came too late.
const LATE: u8 = 3;

/// The exit code if everything is committed, but not all data is received.
const UNFINISHED: u8 = 4;

/// The most files named if none exists.
const MAX_NAMED: usize = 10;

/// Arguments of `thalweg submit`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The files to submit
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The drop box: BOX@NODE for members of the mesh, else BOX@HOST:PORT#KEY
    #[arg(long, value_name = "BOX@NODE")]
    to: String,
    /// Only commit, before the deadline; the same command without this option sends the data later
    #[arg(long)]
    commit_only: bool,
    /// Submit nothing; report what would fail, with the exit code that the command would have
    #[arg(short = 'n', long, conflicts_with = "anew")]
    dry_run: bool,
    /// Keep the receipts in this directory [default: beside each file]
    #[arg(long, value_name = "DIR")]
    receipts: Option<PathBuf>,
    /// Commit again to files whose receipts are for another box, key or content; the new receipt
    /// replaces the old one once it is signed
    #[arg(long)]
    anew: bool,
    /// Print a JSON object for each file
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state_dir: StateDir,
    #[command(flatten)]
    queue: QueueOptions,
}

/// Runs the command.
///
/// # Errors
/// If nothing could be done; the message says what to try.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut missing = local_files::missing(&args.files);
    // Existing files are submitted even if others are missing.
    if missing.len() == args.files.len() {
        let more = missing.len().saturating_sub(MAX_NAMED);
        missing.truncate(MAX_NAMED);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        bail!("nothing was committed: {}{more}", missing.join("; "));
    }
    let mesh = ClientMesh::load(&args.state_dir)?;
    let target = mesh.target(&args.to, &args.state_dir)?;
    let identity = ClientIdentity::load_or_create(&args.state_dir, mesh)?;
    host::block_on(async {
        let connector = Connector::new(&identity.key)?;
        let mut named = NamedFiles::examine(&args, &identity, &target, &connector).await?;
        named.print_errors();
        if args.dry_run {
            return dry_run::run(named, &args, &target, &connector).await;
        }
        let stop = CancellationToken::new();
        let signals =
            stop_on_signals(Signals::watch()?, stop.clone(), |text| note!("thalweg: {text}"));
        tokio::spawn(signals);
        let submitter =
            Submitter { target: &target, connector: &connector, identity: &identity, stop: &stop };
        let committed = submitter.commit(&mut named.items, &args.to).await;
        named.items.iter().for_each(Submission::remove_useless_receipt);
        let done = match committed {
            Ok(()) if !args.commit_only => tokio::select! {
                done = upload::send_all(&mut named.items, &target, &connector) => done,
                () = stop.cancelled() => Ok(()),
            },
            committed => committed,
        };
        let is_any_committed = named.items.iter().any(|item| item.step() != Step::Nothing);
        if done.is_ok() || is_any_committed || args.json {
            print(&named, args.json)?;
        }
        done?;
        if stop.is_cancelled() && named.is_open() {
            note!("thalweg: interrupted; the same command continues");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        Ok(exit(&named, args.commit_only))
    })
}

type Stamps = Vec<Result<Signed<Stamp>, Refusal>>;

/// Asks the destination for signed commitments until the user interrupts.
struct Submitter<'a> {
    target: &'a Target,
    connector: &'a Connector,
    identity: &'a ClientIdentity,
    stop: &'a CancellationToken,
}

impl Submitter<'_> {
    /// Step 1 of a submission, for items without a stamp: one request for up to `MOST_INTENTS` items; each stamp is
    /// stored when it arrives.
    async fn commit(&self, items: &mut [Submission], to: &str) -> anyhow::Result<()> {
        let mut open: Vec<&mut Submission> =
            items.iter_mut().filter(|i| i.evidence.stamp.is_none()).collect();
        let intent = |item: &&mut Submission| Intent {
            label: item.evidence.label.clone(),
            commitment: item.evidence.commitment,
        };
        for some in open.chunks_mut(MOST_INTENTS) {
            let intents: Vec<Intent> = some.iter().map(intent).collect();
            let is_sent = Cell::new(false);
            let asked = tokio::select! {
                asked = retry::retry_when_asked(|| self.stamps(&intents, &is_sent)) => Some(asked),
                () = self.stop.cancelled() => None,
            };
            let is_answered = matches!(asked, Some(Ok(_) | Err(ClientError::Refused(_))));
            // Without an answer it is unknown whether the destination has committed.
            let is_unknown = is_sent.get() && !is_answered;
            some.iter_mut().for_each(|item| item.may_be_committed = is_unknown);
            let Some(asked) = asked else { return Ok(()) };
            let stamps = asked.with_context(|| {
            let none = if is_unknown { "" } else { "; nothing was committed by this request" };
            format!(
                "cannot commit to {to}{none}; run the same command again before the deadline: what \
                 was signed already gets the same signature"
            )
        })?;
            for (item, stamp) in some.iter_mut().zip(stamps) {
                match stamp {
                    Ok(stamp) => item.record_stamp(stamp)?,
                    Err(refusal) => item.record_refusal(&refusal),
                }
            }
        }
        Ok(())
    }

    /// Sends one request over a connection of its own: the destination closes connections that are idle too long.
    async fn stamps(
        &self,
        intents: &[Intent],
        is_sent: &Cell<bool>,
    ) -> Result<Stamps, ClientError> {
        let mut line = NodeChannel::open(self.connector, &self.target.port).await?;
        is_sent.set(true);
        let stamps = self.target.commit(&mut line, self.identity.key.id(), intents).await;
        line.close().await;
        stamps
    }
}

fn print(named: &NamedFiles, as_json: bool) -> anyhow::Result<()> {
    let mut text = String::new();
    let mut sample = FailureSample::default();
    for item in &named.items {
        let evidence = &item.evidence;
        let committed = item.evidence.stamp.as_ref().map(|stamp| stamp.value());
        let node = evidence.receipt.as_ref().map(|r| r.value().node.to_string());
        if as_json {
            let date = committed.map(|stamp| thalweg_wire::bistro::show_date(stamp.time));
            let line = json!({
                "file": item.file.display().to_string(), "size": evidence.commitment.content_size(),
                "encrypted": evidence.commitment.size, "blake3": evidence.content.map(|hash| hash.to_string()),
                "commitment": evidence.commitment.hash_text(), "step": item.step().name(),
                "committed": date, "number": committed.map(|stamp| stamp.number), "node": node,
                "receipt": item.receipt.display().to_string(), "why": item.why,
            });
            text += &format!("{line}\n");
            continue;
        }
        let (file, receipt) = (printable(&item.file), printable(&item.receipt));
        text += &match (item.step(), node) {
            (Step::Received, Some(node)) => format!("{file}: received by {node}; {receipt}\n"),
            (Step::Committed, _) => {
                format!("{file}: committed; its data has not been received yet\n")
            }
            _ => format!("{file}: not committed\n"),
        };
        if let Some(why) = item.why.as_ref().filter(|why| sample.takes("", why)) {
            note!("thalweg: {file}: {why}");
        }
    }
    sample.more().iter().for_each(|more| note!("thalweg: {more}"));
    if as_json {
        named.not_submitted.iter().for_each(|left| text += &format!("{}\n", json(left)));
    }
    say(&text)
}

/// A file that is not submitted, as JSON.
fn json(left: &NotSubmitted) -> serde_json::Value {
    let step = if left.is_receipt { "receipt" } else { Step::Nothing.name() };
    json!({ "file": left.file.display().to_string(), "step": step, "why": left.why })
}

fn exit(named: &NamedFiles, commit_only: bool) -> ExitCode {
    let any = |step: Step| named.items.iter().any(|item| item.step() == step);
    match () {
        () if named.items.iter().any(|item| item.late) => ExitCode::from(LATE),
        () if any(Step::Nothing) || named.error_count() > 0 => ExitCode::FAILURE,
        // Only receipts were named: nothing was submitted, which may be a mistake.
        () if named.items.is_empty() => ExitCode::FAILURE,
        () if any(Step::Committed) && !commit_only => ExitCode::from(UNFINISHED),
        () => ExitCode::SUCCESS,
    }
}

/// Splits `BOX@NODE` into the box and the node.
fn parts(to: &str) -> anyhow::Result<(&str, &str)> {
    match to.split_once('@') {
        Some((name, node)) if !name.is_empty() && !node.is_empty() => Ok((name, node)),
        _ => bail!("`{to}` is not a drop box: write BOX@NODE, or BOX@HOST:PORT#KEY"),
    }
}
