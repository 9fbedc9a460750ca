//! A file to submit, and what is stored about its submission.

use super::{Args, client::ClientIdentity, progress::Progress};
use crate::commands::text::printable;
use anyhow::{Context as _, bail};
use std::path::{Path, PathBuf};
use thalweg_dropbox::{
    Target, begin_evidence, load_evidence, new_keys, new_nonce, open_data, path_beside,
    save_evidence_in_turn,
};
use thalweg_units::NodeId;
use thalweg_wire::{
    Signed, Signer as _,
    bistro::{
        Commitment, ContentHash, EnvelopeKeys, Evidence, Label, Nonce, Receipt, Refusal, Sheet,
        Stamp,
    },
};

/// The suffix of receipts.
pub const RECEIPT: &str = ".receipt";

/// The suffix of a receipt that will replace another one once it is stamped.
const ANEW: &str = ".receipt.anew";

/// The steps of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Nothing,
    Committed,
    Received,
}

impl Step {
    /// The word for JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Committed => "committed",
            Self::Received => "received",
        }
    }
}

/// A file and its receipt.
pub struct Submission {
    pub file: PathBuf,
    pub receipt: PathBuf,
    pub evidence: Evidence,
    /// Why it did not get further.
    pub why: Option<String>,
    /// Whether the destination says that it came too late.
    pub late: bool,
    /// Whether the receipt of another submission is at this one's place. Until there is a stamp, this one is stored
    /// beside it.
    beside: bool,
    /// Whether its nonce was created by this call, so that no other host knows it.
    is_new: bool,
    /// Whether the destination may have committed to it while its answer was lost.
    pub may_be_committed: bool,
    /// Whether the destination has said that there is no commitment to it, and will be none.
    is_refused: bool,
}

impl Submission {
    /// Reads the file, and what an earlier call stored about it. Writes nothing. `None` if the box's sheet is needed:
    /// it contains the key to encrypt the data to.
    ///
    /// # Errors
    /// If a file cannot be read, has changed since it was committed to, or the receipt of another submission is in the
    /// way.
    pub fn examine(
        file: &Path,
        args: &Args,
        identity: &ClientIdentity,
        target: &Target,
        sheet: Option<&Signed<Sheet>>,
    ) -> anyhow::Result<Option<Self>> {
        let receipt = receipt_path(file, args.receipts.as_deref(), RECEIPT)?;
        let aside = receipt_path(file, args.receipts.as_deref(), ANEW)?;
        let kept = load(&receipt)?;
        let beside = kept.is_some();
        let client = identity.key.id();
        if let Some(kept) = kept {
            let difference = match difference(&kept, target, client) {
                None if is_committed(&kept, file)? => {
                    return Ok(Some(Self::new(file, receipt, kept)));
                }
                None => "the file has changed since it was committed to (restore the old content to continue)"
                    .to_owned(),
                Some(difference) => difference,
            };
            check_replaceable(&kept, &receipt, &difference, args.anew)?;
        }
        // An earlier call has started this submission, and its stamp may be on its way.
        if let Some(begun) = load(&aside)?.filter(|_| beside)
            && difference(&begun, target, client).is_none()
            && is_committed(&begun, file)?
        {
            return Ok(Some(Self { beside, ..Self::new(file, receipt, begun) }));
        }
        let Some(sheet) = sheet else { return Ok(None) };
        let nonce = new_nonce()?;
        let keys = new_keys(sheet, &client).context("cannot encrypt to the box's key")?;
        let (commitment, content) = commitment(file, &nonce, &keys, client)?;
        let evidence = Evidence {
            drop_box: target.drop_box.clone(),
            destination: target.port.key,
            client,
            label: label(file)?,
            commitment,
            nonce: Some(nonce),
            keys: Some(keys),
            content: Some(content),
            stamp: None,
            receipt: None,
            sheet: None,
            roster: identity.roster.clone(),
        };
        Ok(Some(Self { beside, is_new: true, ..Self::new(file, receipt, evidence) }))
    }

    fn new(file: &Path, receipt: PathBuf, evidence: Evidence) -> Self {
        Self {
            file: file.to_owned(),
            receipt,
            evidence,
            why: None,
            late: false,
            beside: false,
            is_new: false,
            may_be_committed: false,
            is_refused: false,
        }
    }

    /// Stores the nonce before it is used. Returns `false` if another call has started to submit the file meanwhile.
    ///
    /// # Errors
    /// As the disk reports them.
    pub fn begin(&self) -> anyhow::Result<bool> {
        match self.is_new {
            false => Ok(true),
            // Only this submission uses this file, so it replaces what an earlier call left.
            true if self.beside => self.save().map(|()| true),
            true => begin_evidence(&self.receipt, &self.evidence)
                .with_context(|| format!("cannot write {}", printable(&self.receipt))),
        }
    }

    /// Checks that a receipt can be stored. An existing file of that name is not checked.
    ///
    /// # Errors
    /// As the system reports them.
    pub fn check_directory(&self) -> anyhow::Result<()> {
        let directory = self.receipt.parent().filter(|above| !above.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        rustix::fs::access(directory, access)
            .with_context(|| format!("cannot write {}", printable(&self.receipt)))
    }

    /// Removes the receipt if it proves nothing and never will: the destination has no commitment with this nonce.
    pub fn remove_useless_receipt(&self) {
        let is_unknown = self.is_new && !self.may_be_committed;
        if self.evidence.stamp.is_none() && (is_unknown || self.is_refused) {
            // If it cannot be removed, the next call continues or replaces it.
            _ = std::fs::remove_file(self.stored_at());
        }
    }

    /// The last completed step.
    pub fn step(&self) -> Step {
        match (&self.evidence.stamp, &self.evidence.receipt) {
            (None, _) => Step::Nothing,
            (Some(_), None) => Step::Committed,
            (Some(_), Some(_)) => Step::Received,
        }
    }

    /// Stores the destination's stamp. From now on the receipt is at its own place.
    ///
    /// # Errors
    /// As the disk reports them.
    pub fn record_stamp(&mut self, stamp: Signed<Stamp>) -> anyhow::Result<()> {
        self.evidence.label = stamp.value().label.clone();
        self.evidence.stamp = Some(stamp);
        let aside = Some(self.stored_at()).filter(|_| std::mem::take(&mut self.beside));
        self.save()?;
        // If it cannot be removed: it is of the same submission and is not read again.
        aside.iter().for_each(|aside| _ = std::fs::remove_file(aside));
        Ok(())
    }

    /// Records a refusal of the destination.
    pub fn record_refusal(&mut self, refusal: &Refusal) {
        self.late = matches!(refusal, Refusal::Late { .. });
        self.is_refused = !refusal.is_passing();
        self.may_be_committed |= refusal.is_passing();
        self.why = Some(format!("the destination refuses: {refusal}"));
    }

    /// Stores a node's receipt.
    ///
    /// # Errors
    /// As the disk reports them.
    pub fn record_receipt(
        &mut self,
        receipt: Signed<Receipt>,
        sheet: &Signed<Sheet>,
    ) -> anyhow::Result<()> {
        self.evidence.receipt = Some(receipt);
        self.evidence.sheet = Some(sheet.clone());
        self.why = None;
        self.save()
    }

    /// Where the receipt is stored now.
    fn stored_at(&self) -> PathBuf {
        let directory = self.receipt.parent().filter(|_| self.beside);
        let aside =
            directory.and_then(|directory| receipt_path(&self.file, Some(directory), ANEW).ok());
        aside.unwrap_or_else(|| self.receipt.clone())
    }

    fn save(&self) -> anyhow::Result<()> {
        let file = self.stored_at();
        save_evidence_in_turn(&file, &self.evidence)
            .with_context(|| format!("cannot write {}", printable(&file)))
    }
}

fn load(receipt: &Path) -> anyhow::Result<Option<Evidence>> {
    load_evidence(receipt).with_context(|| {
        format!("{}: not a complete receipt; move it away to start over", printable(receipt))
    })
}

/// Why the receipt cannot be continued as a submission of this key to this box; `None` if it can.
fn difference(kept: &Evidence, target: &Target, client: NodeId) -> Option<String> {
    match () {
        () if kept.drop_box != target.drop_box => {
            Some(format!("it belongs to a submission to the drop box `{}`", kept.drop_box))
        }
        () if kept.destination != target.port.key => {
            Some("it belongs to a submission to another node".to_owned())
        }
        () if kept.client != client => {
            Some("it belongs to a submission with another key (of another --state?)".to_owned())
        }
        () if kept.nonce.is_none() || kept.keys.is_none() || kept.content.is_none() => {
            let why =
                "its lines `nonce`, `blake3` and `keys` are needed to continue, but are missing";
            Some(why.to_owned())
        }
        () => None,
    }
}

/// Whether this file is the one that was committed to.
fn is_committed(kept: &Evidence, file: &Path) -> anyhow::Result<bool> {
    let (Some(nonce), Some(keys)) = (&kept.nonce, &kept.keys) else { return Ok(false) };
    Ok(commitment(file, nonce, keys, kept.client)?.0 == kept.commitment)
}

/// Refuses to replace a receipt with a stamp, which cannot be obtained again, unless `anew` asks for it.
fn check_replaceable(
    kept: &Evidence,
    receipt: &Path,
    difference: &str,
    anew: bool,
) -> anyhow::Result<()> {
    if kept.stamp.is_none() || anew {
        return Ok(());
    }
    bail!(
        "{} is not replaced: {difference}. Move it away, or keep the new one elsewhere with --receipts \
         DIR; with --anew the file is committed to once more, and the new receipt replaces this \
         one as soon as it is signed",
        printable(receipt)
    )
}

/// The path `FILE.receipt` or the like, beside the file or in the given directory.
///
/// # Errors
/// If the path has no file name, or the name is too long.
pub fn receipt_path(
    file: &Path,
    directory: Option<&Path>,
    suffix: &str,
) -> anyhow::Result<PathBuf> {
    let name = file.file_name().context("it is not a file")?;
    let own = file.parent().unwrap_or(Path::new(""));
    path_beside(directory.unwrap_or(own), name, suffix).with_context(|| {
        format!(
            "no name for its receipt: give a shorter directory with --receipts, or run the command \
             in the directory of the file (NAME{suffix})"
        )
    })
}

/// The file's name, as far as others may see it; a blank name becomes `_`.
fn label(file: &Path) -> anyhow::Result<Label> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    Label::near(&name).or_else(|| Label::near("_")).context("the file has no name to submit")
}

/// Reads the whole file. Returns the commitment to it, encrypted with these keys, and its own hash.
///
/// # Errors
/// As the system reports them.
pub fn commitment(
    file: &Path,
    nonce: &Nonce,
    keys: &EnvelopeKeys,
    client: NodeId,
) -> anyhow::Result<(Commitment, ContentHash)> {
    let cannot = || format!("cannot read {}", printable(file));
    let opened = open_data(file).with_context(cannot)?;
    let size = opened.metadata().with_context(cannot)?.len();
    let opened = Progress::new(opened, "reading", file, size);
    thalweg_dropbox::commit(opened, keys, nonce, &client).with_context(cannot)
}
