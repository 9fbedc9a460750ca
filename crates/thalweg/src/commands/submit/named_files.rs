//! The files named on the command line: files to submit, receipts to skip, and files that cannot be submitted.

use super::{
    Args,
    client::ClientIdentity,
    retry,
    submission::{RECEIPT, Step, Submission, receipt_path},
};
use crate::commands::text::printable;
use anyhow::Context as _;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};
use thalweg_base::sample::FailureSample;
use thalweg_console::note;
use thalweg_dropbox::{ClientError, NodeChannel, Target, load_evidence};
use thalweg_net::channel::Connector;
use thalweg_wire::{Signed, Signer as _, bistro::Sheet};

/// A file that is not submitted.
pub struct NotSubmitted {
    pub file: PathBuf,
    pub why: String,
    /// Whether it is a receipt of this box, and so belongs to another file.
    pub is_receipt: bool,
}

/// All named files, each once.
#[derive(Default)]
pub struct NamedFiles {
    pub items: Vec<Submission>,
    pub not_submitted: Vec<NotSubmitted>,
}

impl NamedFiles {
    /// Examines all files, and starts the submission of those that can be submitted. With `--dry-run` nothing is
    /// written.
    ///
    /// # Errors
    /// If a new submission needs the box's key, and the destination does not give it.
    pub async fn examine(
        args: &Args,
        identity: &ClientIdentity,
        target: &Target,
        connector: &Connector,
    ) -> anyhow::Result<Self> {
        let (mut named, mut sheet) = (Self::default(), None);
        for (file, why) in unique_files(&args.files, args.receipts.as_deref()) {
            if let Some(why) = why {
                named.exclude(file, why, false);
                continue;
            }
            // A file that cannot be read is reported by `Submission::examine`.
            if target.is_receipt(file).unwrap_or(false) {
                let is_left = || is_leftover(file, args, identity, target);
                let why = match !args.dry_run && is_left() && fs::remove_file(file).is_ok() {
                    true => "an unsigned receipt of a file that is not here: removed".to_owned(),
                    false => format!("it is a receipt of `{}`: not submitted", target.drop_box),
                };
                named.exclude(file, why, true);
                continue;
            }
            let examine = |sheet: Option<&Signed<Sheet>>| {
                Submission::examine(file, args, identity, target, sheet)
            };
            let mut item = examine(sheet.as_ref());
            if matches!(item, Ok(None)) {
                let none = "nothing was committed by this request; run the same command again before the deadline";
                let asked = retry::retry_when_asked(|| ask_sheet(target, connector)).await;
                sheet =
                    Some(asked.with_context(|| format!("cannot commit to {}; {none}", args.to))?);
                item = examine(sheet.as_ref());
            }
            let item = item.and_then(|item| {
                let item = item.context("the destination does not give the box's key")?;
                if args.dry_run {
                    return item.check_directory().map(|()| item);
                }
                if item.begin()? {
                    return Ok(item);
                }
                // The other call has stored a nonce, and both calls must use the same one.
                examine(sheet.as_ref())?
                    .context("another command is submitting the file; run the same command again")
            });
            match item {
                Ok(item) => named.items.push(item),
                Err(why) => named.exclude(file, format!("{why:#}"), false),
            }
        }
        Ok(named)
    }

    fn exclude(&mut self, file: &Path, why: String, is_receipt: bool) {
        self.not_submitted.push(NotSubmitted { file: file.to_owned(), why, is_receipt });
    }

    /// The number of files that cannot be submitted.
    pub fn error_count(&self) -> usize {
        self.not_submitted.iter().filter(|left| !left.is_receipt).count()
    }

    /// Whether more remains to be done.
    pub fn is_open(&self) -> bool {
        self.items.iter().any(|item| item.step() != Step::Received && item.why.is_none())
    }

    /// Prints the files that are not submitted, with reasons; of many with one reason only the first.
    pub fn print_errors(&self) {
        let mut sample = FailureSample::default();
        for NotSubmitted { file, why, .. } in &self.not_submitted {
            let name = printable(file);
            // If the message names the file, the rest of the message identifies the reason.
            if sample.takes("", &why.replace(&name, "")) {
                match why.contains(&name) {
                    true => note!("thalweg: {why}"),
                    false => note!("thalweg: {name}: {why}"),
                }
            }
        }
        sample.more().iter().for_each(|more| note!("thalweg: {more}"));
        if self.error_count() > 0 && !self.items.is_empty() {
            note!(
                "thalweg: {} of {} files cannot be submitted; the others are",
                self.error_count(),
                self.error_count() + self.items.len()
            );
        }
    }
}

/// Asks the destination for the box's sheet, over a connection of its own.
///
/// # Errors
/// [`ClientError`].
pub async fn ask_sheet(
    target: &Target,
    connector: &Connector,
) -> Result<Signed<Sheet>, ClientError> {
    let mut line = NodeChannel::open(connector, &target.port).await?;
    let sheet = target.sheet(&mut line).await;
    line.close().await;
    sheet
}

/// Returns each file once, identified by the place of its receipt. If two different files would have the same receipt,
/// so that one would be lost, both get the reason why they cannot be submitted.
fn unique_files<'a>(
    files: &'a [PathBuf],
    receipts: Option<&Path>,
) -> Vec<(&'a PathBuf, Option<String>)> {
    let mut places: BTreeMap<PathBuf, Vec<usize>> = BTreeMap::new();
    let mut all: Vec<(&PathBuf, Option<String>)> = files.iter().map(|file| (file, None)).collect();
    for (number, file) in files.iter().enumerate() {
        if let Ok(at) = receipt_path(file, receipts, RECEIPT) {
            places.entry(canonical(&at)).or_default().push(number);
        }
    }
    let mut again = Vec::new();
    for (at, numbers) in places {
        let [first, others @ ..] = &numbers[..] else { continue };
        let same = |other: &&usize| canonical(&files[**other]) == canonical(&files[*first]);
        if others.iter().all(|other| same(&other)) {
            again.extend(others);
            continue;
        }
        let (a, b) = (printable(&files[*first]), printable(&files[others[others.len() - 1]]));
        let why = format!(
            "{a} and {b} have the same name and would share the receipt {}: keep the receipts \
             beside the files (without --receipts), or submit one of them by itself with another \
             --receipts DIR",
            printable(&at)
        );
        numbers.iter().for_each(|number| all[*number].1 = Some(why.clone()));
    }
    for number in &again {
        note!("thalweg: {}: named twice", printable(&files[*number]));
    }
    let kept = all.into_iter().enumerate().filter(|(number, _)| !again.contains(number));
    kept.map(|(_, file)| file).collect()
}

/// A canonical path of a file: the same for all ways to write it.
fn canonical(path: &Path) -> PathBuf {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let above = fs::canonicalize(above.unwrap_or(Path::new(".")));
    match (above, path.file_name()) {
        (Ok(above), Some(name)) => above.join(name),
        _ => path.to_owned(),
    }
}

/// Whether a receipt is a leftover of an earlier call with this key: it has no signature, and its file is no longer
/// beside it, so that the submission cannot be continued. In doubt the answer is no, because the destination may have
/// signed it: a receipt in the directory of receipts is not beside its file, and a shortened name does not name the
/// file.
fn is_leftover(file: &Path, args: &Args, identity: &ClientIdentity, target: &Target) -> bool {
    let Ok(Some(kept)) = load_evidence(file) else { return false };
    let is_ours = kept.client == identity.key.id()
        && (&kept.drop_box, &kept.destination) == (&target.drop_box, &target.port.key);
    let is_apart = args.receipts.as_ref().is_some_and(|directory| {
        canonical(file).parent() == fs::canonicalize(directory).ok().as_deref()
    });
    let name = file.file_name().and_then(|name| name.to_str());
    let of = name.and_then(|name| name.strip_suffix(".anew").unwrap_or(name).strip_suffix(RECEIPT));
    let is_gone = of
        .is_some_and(|of| !is_shortened(of) && file.with_file_name(of).symlink_metadata().is_err());
    is_ours && kept.stamp.is_none() && !is_apart && is_gone
}

/// Whether a receipt's file name may have been shortened: it contains `~` and 16 digits of a hash.
fn is_shortened(name: &str) -> bool {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let parts = name.as_bytes().split(|byte| *byte == b'~').skip(1);
    parts.map(|part| part.iter().take_while(|byte| is_digit(byte)).count()).any(|n| n >= 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortened_names_are_recognised() {
        let long = "n".repeat(250) + ".tar.gz";
        let short = thalweg_wire::file_name::fitting(long.as_bytes(), 120);
        assert!(is_shortened(std::str::from_utf8(&short).unwrap()));
        for whole in ["", "notes", "a~", "backup~1", "x~0123456789abcde.txt"] {
            assert!(!is_shortened(whole), "{whole}");
        }
    }
}
