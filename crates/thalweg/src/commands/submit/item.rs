//! One file on its way: what is kept of it.

use super::{Args, progress::Progress, to::Identity};
use crate::commands::text::printable;
use anyhow::{Context as _, bail};
use std::path::{Path, PathBuf};
use thalweg_dropbox::{
    Target, begin_evidence, beside, load_evidence, new_keys, new_nonce, open_data,
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

/// Ends a receipt's name.
pub const RECEIPT: &str = ".receipt";

/// Ends the name of one that waits for its stamp, to take another's place.
const ANEW: &str = ".receipt.anew";

/// How far a file has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Nothing,
    Committed,
    Received,
}

impl Step {
    /// The word for JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Committed => "committed",
            Self::Received => "received",
        }
    }
}

/// A file, and its receipt.
pub struct Item {
    pub file: PathBuf,
    pub receipt: PathBuf,
    pub evidence: Evidence,
    /// Why it got no further.
    pub why: Option<String>,
    /// The destination says that it came too late.
    pub late: bool,
    /// Another submission's receipt is in the place of this one's: until there is a stamp, this
    /// one is kept beside it.
    beside: bool,
    /// Its nonce was made by this call: nobody else has heard of it.
    is_new: bool,
    /// The destination may have committed to it, and its answer was lost.
    pub may_be_committed: bool,
    /// The destination has said that there is no commitment to it, and will be none.
    is_refused: bool,
}

impl Item {
    /// Reads the file, and what was kept of an earlier call. Writes nothing. `None`: the box's sheet is needed, as it
    /// has the key that data is encrypted to.
    ///
    /// # Errors
    /// If a file cannot be read, has changed since it was committed to, or if the receipt of
    /// another submission is in the way.
    pub fn look(
        file: &Path,
        args: &Args,
        identity: &Identity,
        target: &Target,
        sheet: Option<&Signed<Sheet>>,
    ) -> anyhow::Result<Option<Self>> {
        let receipt = place(file, args.receipts.as_deref(), RECEIPT)?;
        let aside = place(file, args.receipts.as_deref(), ANEW)?;
        let kept = load(&receipt)?;
        let beside = kept.is_some();
        let client = identity.key.id();
        if let Some(kept) = kept {
            let other = match other(&kept, target, client) {
                None if is_of(&kept, file)? => return Ok(Some(Self::new(file, receipt, kept))),
                None => "the file has changed since it was committed to (bring the old one back \
                         to go on)"
                    .to_owned(),
                Some(other) => other,
            };
            check_in_the_way(&kept, &receipt, &other, args.anew)?;
        }
        // An earlier call has begun this one, and its stamp may be on its way.
        if let Some(begun) = load(&aside)?.filter(|_| beside)
            && other(&begun, target, client).is_none()
            && is_of(&begun, file)?
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

    /// Keeps the nonce, before it is used; `false` if another call has begun to submit the file meanwhile.
    ///
    /// # Errors
    /// The disk's.
    pub fn begin(&self) -> anyhow::Result<bool> {
        match self.is_new {
            false => Ok(true),
            // This file is written for one submission only, so it replaces what an earlier call left.
            true if self.beside => self.save().map(|()| true),
            true => begin_evidence(&self.receipt, &self.evidence)
                .with_context(|| format!("cannot keep {}", printable(&self.receipt))),
        }
    }

    /// Whether a receipt could be kept; of a file of this name that is there already, it is not known.
    ///
    /// # Errors
    /// The system's.
    pub fn check_place(&self) -> anyhow::Result<()> {
        let directory = self.receipt.parent().filter(|above| !above.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        rustix::fs::access(directory, access)
            .with_context(|| format!("cannot keep {}", printable(&self.receipt)))
    }

    /// Removes what was kept of it if that proves nothing and never will: the destination has no
    /// commitment of this nonce.
    pub fn forget(&self) {
        let is_unknown = self.is_new && !self.may_be_committed;
        if self.evidence.stamp.is_none() && (is_unknown || self.is_refused) {
            // What stays is gone on with, or replaced, by the next call.
            _ = std::fs::remove_file(self.kept_at());
        }
    }

    /// How far it has got.
    pub fn step(&self) -> Step {
        match (&self.evidence.stamp, &self.evidence.receipt) {
            (None, _) => Step::Nothing,
            (Some(_), None) => Step::Committed,
            (Some(_), Some(_)) => Step::Received,
        }
    }

    /// Keeps the destination's stamp; from now on the receipt is in its place.
    ///
    /// # Errors
    /// The disk's.
    pub fn stamped(&mut self, stamp: Signed<Stamp>) -> anyhow::Result<()> {
        self.evidence.label = stamp.value().label.clone();
        self.evidence.stamp = Some(stamp);
        let aside = Some(self.kept_at()).filter(|_| std::mem::take(&mut self.beside));
        self.save()?;
        // What cannot be removed is of the same submission, and read by nobody.
        aside.iter().for_each(|aside| _ = std::fs::remove_file(aside));
        Ok(())
    }

    /// The destination has said no.
    pub fn refused(&mut self, refusal: &Refusal) {
        self.late = matches!(refusal, Refusal::Late { .. });
        self.is_refused = !refusal.is_passing();
        self.may_be_committed |= refusal.is_passing();
        self.why = Some(format!("the destination refuses: {refusal}"));
    }

    /// Keeps a node's receipt.
    ///
    /// # Errors
    /// The disk's.
    pub fn received(
        &mut self,
        receipt: Signed<Receipt>,
        sheet: &Signed<Sheet>,
    ) -> anyhow::Result<()> {
        self.evidence.receipt = Some(receipt);
        self.evidence.sheet = Some(sheet.clone());
        self.why = None;
        self.save()
    }

    /// Where it is kept now.
    fn kept_at(&self) -> PathBuf {
        let directory = self.receipt.parent().filter(|_| self.beside);
        let aside = directory.and_then(|directory| place(&self.file, Some(directory), ANEW).ok());
        aside.unwrap_or_else(|| self.receipt.clone())
    }

    fn save(&self) -> anyhow::Result<()> {
        let file = self.kept_at();
        save_evidence_in_turn(&file, &self.evidence)
            .with_context(|| format!("cannot keep {}", printable(&file)))
    }
}

fn load(receipt: &Path) -> anyhow::Result<Option<Evidence>> {
    load_evidence(receipt).with_context(|| {
        format!("{}: it is no whole receipt; move it away to begin anew", printable(receipt))
    })
}

/// Why this is not a submission of this key to this box that can go on; `None` if it is one.
fn other(kept: &Evidence, target: &Target, client: NodeId) -> Option<String> {
    match () {
        () if kept.drop_box != target.drop_box => {
            Some(format!("it is of a submission to the drop box `{}`", kept.drop_box))
        }
        () if kept.destination != target.port.key => {
            Some("it is of a submission to another node".to_owned())
        }
        () if kept.client != client => {
            Some("it is of a submission with another key (of another --state?)".to_owned())
        }
        () if kept.nonce.is_none() || kept.keys.is_none() || kept.content.is_none() => {
            let why =
                "its lines `nonce`, `blake3` and `keys` are needed to continue, and were taken out";
            Some(why.to_owned())
        }
        () => None,
    }
}

/// Whether this file is what was committed to.
fn is_of(kept: &Evidence, file: &Path) -> anyhow::Result<bool> {
    let (Some(nonce), Some(keys)) = (&kept.nonce, &kept.keys) else { return Ok(false) };
    Ok(commitment(file, nonce, keys, kept.client)?.0 == kept.commitment)
}

/// A stamp cannot be had again: it is replaced by another one alone, and if that is wanted.
fn check_in_the_way(
    kept: &Evidence,
    receipt: &Path,
    other: &str,
    anew: bool,
) -> anyhow::Result<()> {
    if kept.stamp.is_none() || anew {
        return Ok(());
    }
    bail!(
        "{} is not replaced: {other}. Move it away, or keep the new one elsewhere with --receipts \
         DIR; with --anew the file is committed to once more, and the new receipt replaces this \
         one as soon as it is signed",
        printable(receipt)
    )
}

/// `FILE.receipt` or the like, beside the file or in the given directory.
///
/// # Errors
/// That the path ends with no name, or is too long.
pub fn place(file: &Path, directory: Option<&Path>, suffix: &str) -> anyhow::Result<PathBuf> {
    let name = file.file_name().context("it is no file")?;
    let own = file.parent().unwrap_or(Path::new(""));
    beside(directory.unwrap_or(own), name, suffix).with_context(|| {
        format!(
            "no name for its receipt: give a shorter directory with --receipts, or call this from \
             the directory of the file (NAME{suffix})"
        )
    })
}

/// Its name, as far as others may be given it; a name of blanks is `_`.
fn label(file: &Path) -> anyhow::Result<Label> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    Label::near(&name).or_else(|| Label::near("_")).context("it has no name to submit")
}

/// Reads all of it: the commitment to it, encrypted with these keys, and its own hash.
///
/// # Errors
/// The system's.
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
