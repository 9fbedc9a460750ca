//! `--dry-run`: predicts what would fail, as far as it can be known.

use super::{
    Args, LATE, NamedFiles, Submission, UNFINISHED, json, named_files::ask_sheet, retry,
    submission::Step,
};
use crate::commands::text::{counted, printable, say};
use anyhow::Context as _;
use std::{
    process::ExitCode,
    time::{SystemTime, UNIX_EPOCH},
};
use thalweg_base::sample::FailureSample;
use thalweg_console::note;
use thalweg_dropbox::{Target, find_nodes, new_draw};
use thalweg_net::channel::Connector;
use thalweg_units::WallTime;
use thalweg_wire::bistro::{Refusal, Sheet};

/// Asks the destination for its limits and its deadline, and the box's nodes whether they have room. Writes and submits
/// nothing.
///
/// # Errors
/// Those of a real submission.
pub async fn run(
    mut named: NamedFiles,
    args: &Args,
    target: &Target,
    connector: &Connector,
) -> anyhow::Result<ExitCode> {
    let to = &args.to;
    let sheet = retry::retry_when_asked(|| ask_sheet(target, connector)).await;
    let sheet = sheet.with_context(|| format!("cannot commit to {to}"))?.into_value();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let now = WallTime::from_unix_nanos(u64::try_from(now).unwrap_or(u64::MAX));
    for item in named.items.iter_mut().filter(|item| item.step() == Step::Nothing) {
        if let Some(refusal) = refusal(item, &sheet, now) {
            item.record_refusal(&refusal);
        }
    }
    let has_room = args.commit_only || has_room(&named, &sheet, connector).await?;
    print(&named, args.json)?;
    let is_bad = named.error_count() > 0 || named.items.is_empty();
    Ok(match () {
        () if named.items.iter().any(|item| item.late) => ExitCode::from(LATE),
        () if is_bad || named.items.iter().any(|item| item.why.is_some()) => ExitCode::FAILURE,
        () if !has_room => ExitCode::from(UNFINISHED),
        () => ExitCode::SUCCESS,
    })
}

/// Why the destination would refuse, by its published limits and this host's clock.
fn refusal(item: &Submission, sheet: &Sheet, now: WallTime) -> Option<Refusal> {
    let size = item.evidence.commitment.content_size();
    match () {
        () if now >= sheet.until => Some(Refusal::Late { now, until: sheet.until }),
        () if size > sheet.max_bytes => Some(Refusal::TooLarge { size, max: sheet.max_bytes }),
        () => None,
    }
}

/// Whether a node would take the largest file that is not yet received.
async fn has_room(
    named: &NamedFiles,
    sheet: &Sheet,
    connector: &Connector,
) -> anyhow::Result<bool> {
    let open = named.items.iter().filter(|i| i.step() != Step::Received && i.why.is_none());
    let Some(greatest) = open.map(|item| item.evidence.commitment.size).max() else {
        return Ok(true);
    };
    let (offers, others) = find_nodes(connector, sheet, greatest, new_draw()?).await;
    others.iter().for_each(|(name, why)| note!("thalweg: node {name}: {why}"));
    let has_room = !offers.is_empty();
    if !has_room {
        note!("thalweg: no node of the box accepts data now: the files would only be committed");
    }
    for offer in offers {
        offer.line.close().await;
    }
    Ok(has_room)
}

fn print(named: &NamedFiles, as_json: bool) -> anyhow::Result<()> {
    let (mut text, mut sample) = (String::new(), FailureSample::default());
    let mut open = 0;
    for item in &named.items {
        let file = printable(&item.file);
        let would = match (item.step(), &item.why) {
            (Step::Received, _) => "received already",
            (_, Some(_)) => "would not be committed",
            (Step::Committed, _) => "committed already; its data would be sent",
            _ => "would be submitted",
        };
        open += u64::from(item.why.is_none() && item.step() != Step::Received);
        if as_json {
            let (size, why) = (item.evidence.commitment.content_size(), &item.why);
            let line = serde_json::json!({
                "file": item.file.display().to_string(), "size": size, "step": item.step().name(),
                "dry_run": true, "receipt": item.receipt.display().to_string(), "why": why,
            });
            text += &format!("{line}\n");
        } else {
            text += &format!("{file}: {would}\n");
        }
        if let Some(why) = item.why.as_ref().filter(|why| sample.takes("", why)) {
            note!("thalweg: {file}: {why}");
        }
    }
    sample.more().iter().for_each(|more| note!("thalweg: {more}"));
    if as_json {
        named.not_submitted.iter().for_each(|left| text += &format!("{}\n", json(left)));
    }
    note!("thalweg: {} would be submitted; nothing was (--dry-run)", counted(open, "file"));
    say(&text)
}
