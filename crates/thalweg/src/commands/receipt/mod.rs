//! `thalweg receipt`: verifies receipts of submissions, offline.

use super::{
    host::StateDir,
    submit::commitment,
    text::{printable, say},
};
use anyhow::Context as _;
use clap::Subcommand;
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};
use thalweg_console::note;
use thalweg_mesh::State;
use thalweg_net::Ed25519;
use thalweg_wire::{
    Signed,
    bistro::{Evidence, Trust, Verdict},
};

const HELP: &str = "\
Checks every signature of a receipt, and that each line states what was signed. Works offline.
The signatures prove something only if their keys are known: give the key of the box's destination
or of the mesh by --key (at least the first 32 of its 64 digits). A member of the mesh knows its
mesh's key already.

  thalweg receipt verify return.pdf.receipt --key 5b1f…
  thalweg receipt verify return.pdf.receipt --key 5b1f… --data return.pdf

Exit codes: 0 everything is proven; 1 altered (the field is named), or a file cannot be read;
3 unaltered, but the keys do not prove all of it, or a step of the submission is missing.";

/// The exit code for receipts that are unaltered but not proven completely.
const UNPROVEN: u8 = 3;

/// Arguments of `thalweg receipt`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: ReceiptCommand,
}

#[derive(Subcommand)]
enum ReceiptCommand {
    /// Check receipts
    Verify(Verify),
}

#[derive(clap::Args)]
#[command(after_help = HELP)]
struct Verify {
    /// The receipts
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// A trusted key: the destination's, a node's, or the mesh's
    #[arg(long, value_name = "KEY")]
    key: Vec<String>,
    /// Also check that the receipt is for this file
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Print a JSON object for each receipt
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state_dir: StateDir,
}

/// The result for one file.
enum ReceiptVerdict {
    /// The receipt or the data cannot be read, so nothing is known about it.
    Unread(String),
    Altered(String),
    Whole(Box<Evidence>, Verdict),
}

/// Runs the command.
///
/// # Errors
/// If a key is invalid, or nothing can be printed.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let ReceiptCommand::Verify(args) = args.what;
    let (trust, roster) = trust(&args)?;
    let mut code = ExitCode::SUCCESS;
    let (mut altered, mut unproven) = (false, false);
    for file in &args.files {
        let found = examine(file, args.data.as_deref(), &trust, roster.as_ref());
        match &found {
            ReceiptVerdict::Altered(_) | ReceiptVerdict::Unread(_) => altered = true,
            ReceiptVerdict::Whole(_, verdict) => unproven |= !verdict.is_whole(),
        }
        print(file, &found, args.json)?;
    }
    if unproven {
        code = ExitCode::from(UNPROVEN);
    }
    Ok(if altered { ExitCode::FAILURE } else { code })
}

type SignedRoster = Signed<thalweg_wire::mesh::Roster>;

/// The given keys; without any, the key of this host's mesh, with its roster.
fn trust(args: &Verify) -> anyhow::Result<(Trust, Option<SignedRoster>)> {
    let mut trust = Trust::default();
    for key in &args.key {
        trust.add(key).map_err(anyhow::Error::msg).with_context(|| format!("--key {key}"))?;
    }
    // A host without a mesh can verify, too.
    let Ok(membership) = args.state_dir.open().and_then(|state: State| Ok(state.membership()?))
    else {
        return Ok((trust, None));
    };
    if args.key.is_empty() {
        trust.add(&membership.mesh().to_string()).map_err(anyhow::Error::msg)?;
    }
    let roster = membership.signed().and_then(|bytes| Signed::open(&bytes, &Ed25519).ok());
    Ok((trust, roster))
}

fn examine(
    file: &Path,
    data: Option<&Path>,
    trust: &Trust,
    roster: Option<&SignedRoster>,
) -> ReceiptVerdict {
    let text = match fs::read(file) {
        Ok(text) => text,
        Err(e) => return ReceiptVerdict::Unread(format!("cannot read the receipt: {e}")),
    };
    let text = String::from_utf8(text).map_err(|_| "text: the receipt is not UTF-8".to_owned());
    let evidence = text.and_then(|text| Evidence::read(&text, &Ed25519).map_err(|e| e.to_string()));
    let evidence = match evidence {
        Ok(evidence) => evidence,
        Err(why) => return ReceiptVerdict::Altered(why),
    };
    if let Some(found) = data.and_then(|data| differs(&evidence, data)) {
        return found;
    }
    // The receipt's own roster was valid then; this host's may have changed since.
    let mut judged = evidence.clone();
    judged.roster = judged.roster.or_else(|| roster.cloned());
    let verdict = judged.judge(trust);
    ReceiptVerdict::Whole(Box::new(evidence), verdict)
}

/// Why the data is not what was committed to.
fn differs(evidence: &Evidence, data: &Path) -> Option<ReceiptVerdict> {
    let altered = |why: String| Some(ReceiptVerdict::Altered(why));
    let (Some(nonce), Some(keys)) = (&evidence.nonce, &evidence.keys) else {
        let why = "the lines `nonce` and `keys` are needed to check the data";
        return altered(format!("nonce: {why}"));
    };
    match commitment(data, nonce, keys, evidence.client).map(|(found, _)| found) {
        Err(e) => Some(ReceiptVerdict::Unread(format!("{e:#}"))),
        Ok(found) if found.size != evidence.commitment.size => {
            let (have, meant) = (found.content_size(), evidence.commitment.content_size());
            altered(format!(
                "size: {} has {have} bytes, but the commitment is to {meant}",
                printable(data)
            ))
        }
        Ok(found) if found != evidence.commitment => altered(format!(
            "commitment: {}, the nonce or the keys do not match it",
            printable(data)
        )),
        Ok(_) => None,
    }
}

fn print(file: &Path, found: &ReceiptVerdict, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return say(&format!("{}\n", object(&file.display().to_string(), found)));
    }
    let file = printable(file);
    match found {
        ReceiptVerdict::Unread(why) => {
            note!("thalweg: {file}: {why}");
            Ok(())
        }
        ReceiptVerdict::Altered(why) => {
            note!("thalweg: {file}: NOT VALID: {why}");
            Ok(())
        }
        ReceiptVerdict::Whole(_, verdict) => {
            let word =
                if verdict.is_whole() { "valid" } else { "intact, but not everything is proven" };
            let lines = |head: &str, all: &[String]| -> String {
                all.iter().map(|line| format!("  {head}: {line}\n")).collect()
            };
            let proven = lines("proven", &verdict.proven);
            say(&format!("{file}: {word}\n{proven}{}", lines("not proven", &verdict.unproven)))
        }
    }
}

fn object(file: &str, found: &ReceiptVerdict) -> Value {
    match found {
        ReceiptVerdict::Unread(why) => json!({ "file": file, "read": false, "why": why }),
        ReceiptVerdict::Altered(why) => json!({ "file": file, "valid": false, "why": why }),
        ReceiptVerdict::Whole(evidence, verdict) => json!({
            "file": file, "valid": true, "all_proven": verdict.is_whole(),
            "box": evidence.drop_box, "destination": evidence.destination,
            "client": evidence.client, "name": evidence.label.as_str(),
            "size": evidence.commitment.content_size(),
            "encrypted": evidence.commitment.size,
            "blake3": evidence.content.map(|hash| hash.to_string()), "commitment": evidence.commitment.hash_text(),
            "proven": verdict.proven, "not_proven": verdict.unproven,
        }),
    }
}
