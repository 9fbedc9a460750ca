//! `thalweg submit`: commits to files before a deadline, and pushes their data to a node.

mod bring;
mod item;
mod pace;
mod to;

use super::{
    here::{self, Place},
    text::{printable, say},
};
use anyhow::{Context as _, bail};
pub use item::commitment;
use item::{Item, Step};
use serde_json::json;
use std::{path::PathBuf, process::ExitCode};
use thalweg_console::note;
use thalweg_dropbox::{ClientError, Line, Target};
use thalweg_net::channel::Connector;
use thalweg_wire::{
    Signed, Signer as _,
    bistro::{Intent, MOST_INTENTS, Refusal, Stamp},
};
pub use to::Identity;

const HELP: &str = "\
First the box's node time-stamps and signs a commitment to each file (its size and a hidden hash);
this takes a moment and must happen before the deadline. Then the data goes to the nearest idle
node of the box, which returns a receipt. Both are kept in FILE.receipt, which anybody can check
with `thalweg receipt verify`. The same command continues an interrupted submission.

  thalweg submit return.pdf --to taxes@irs
  thalweg submit *.pdf --to taxes@irs.example:7373#KEY      # without being a member of the mesh

The file must not change until its data has been received. FILE.receipt holds the secret that opens
the commitment; leave that line out of copies for others to check.

Exit codes: 0 all files have receipts; 3 some were too late; 4 all commitments are signed, but some
data has not been received (run it again); 1 anything else.";

/// Some commitments came too late.
const LATE: u8 = 3;

/// Committed, and not all data is there.
const UNFINISHED: u8 = 4;

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
    place: Place,
}

/// Runs the command.
///
/// # Errors
/// When nothing could be done; the message says what to try.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let identity = Identity::of(&args.place)?;
    let target = identity.target(&args.to, &args.place)?;
    here::block_on(async {
        Item::check_places(&args.files, args.receipts.as_deref())?;
        let mut items = Vec::with_capacity(args.files.len());
        for file in &args.files {
            items.push(Item::open(file, &args, &identity, &target)?);
        }
        let connector = Connector::new(&identity.key)?;
        commit(&mut items, &target, &connector, (&identity, &args.to)).await?;
        if !args.commit_only {
            bring::all(&mut items, &target, &connector).await?;
        }
        print(&items, args.json)?;
        Ok(exit(&items, args.commit_only))
    })
}

/// Step 1, for those that are not stamped yet: so many in one question, each kept when it is answered.
async fn commit(
    items: &mut [Item],
    target: &Target,
    connector: &Connector,
    (identity, to): (&Identity, &str),
) -> anyhow::Result<()> {
    let mut open: Vec<&mut Item> =
        items.iter_mut().filter(|i| i.evidence.stamp.is_none()).collect();
    let intent = |item: &&mut Item| Intent {
        label: item.evidence.label.clone(),
        commitment: item.evidence.commitment,
    };
    for some in open.chunks_mut(MOST_INTENTS) {
        let intents: Vec<Intent> = some.iter().map(intent).collect();
        let asked = pace::patiently(|| stamps(target, connector, identity, &intents)).await;
        let stamps = asked.with_context(|| {
            format!(
                "cannot commit to {to}; run this again before the deadline: what was signed \
                 already gets the same signature"
            )
        })?;
        for (item, stamp) in some.iter_mut().zip(stamps) {
            match stamp {
                Ok(stamp) => item.stamped(stamp)?,
                Err(refusal) => item.refused(&refusal),
            }
        }
    }
    Ok(())
}

type Stamps = Vec<Result<Signed<Stamp>, Refusal>>;

/// One question, on a line of its own: the destination closes those that wait too long.
async fn stamps(
    target: &Target,
    connector: &Connector,
    identity: &Identity,
    intents: &[Intent],
) -> Result<Stamps, ClientError> {
    let mut line = Line::open(connector, &target.port).await?;
    let stamps = target.commit(&mut line, identity.key.id(), intents).await;
    line.close().await;
    stamps
}

fn print(items: &[Item], as_json: bool) -> anyhow::Result<()> {
    let mut text = String::new();
    for item in items {
        let evidence = &item.evidence;
        let committed = item.evidence.stamp.as_ref().map(|stamp| stamp.value());
        let node = evidence.receipt.as_ref().map(|r| r.value().node.to_string());
        if as_json {
            let date = committed.map(|stamp| thalweg_wire::bistro::show_date(stamp.time));
            let line = json!({
                "file": item.file.display().to_string(), "size": evidence.commitment.size,
                "commitment": evidence.commitment.hash_text(), "step": item.step().word(),
                "committed": date, "number": committed.map(|stamp| stamp.number), "node": node,
                "receipt": item.receipt.display().to_string(), "why": item.why,
            });
            text += &format!("{line}\n");
            continue;
        }
        let (file, receipt) = (printable(&item.file), printable(&item.receipt));
        text += &match (item.step(), node) {
            (Step::Received, Some(node)) => format!("{file}: received by {node}; {receipt}\n"),
            (Step::Committed, _) => format!("{file}: committed; its data is not there yet\n"),
            _ => format!("{file}: not committed\n"),
        };
        if let Some(why) = &item.why {
            note!("thalweg: {file}: {why}");
        }
    }
    say(&text)
}

fn exit(items: &[Item], commit_only: bool) -> ExitCode {
    let any = |step: Step| items.iter().any(|item| item.step() == step);
    match () {
        () if items.iter().any(|item| item.late) => ExitCode::from(LATE),
        () if any(Step::Nothing) => ExitCode::FAILURE,
        () if any(Step::Committed) && !commit_only => ExitCode::from(UNFINISHED),
        () => ExitCode::SUCCESS,
    }
}

/// A box and a node, of `BOX@NODE`.
fn parts(to: &str) -> anyhow::Result<(&str, &str)> {
    match to.split_once('@') {
        Some((name, node)) if !name.is_empty() && !node.is_empty() => Ok((name, node)),
        _ => bail!("`{to}` is no drop box: one is written BOX@NODE, or BOX@HOST:PORT#KEY"),
    }
}
