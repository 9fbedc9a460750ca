//! One file on its way: what is kept of it.

use super::{Args, to::Identity};
use crate::commands::text::printable;
use anyhow::{Context as _, bail};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};
use thalweg_dropbox::{Target, load_evidence, new_nonce, save_evidence};
use thalweg_units::NodeId;
use thalweg_wire::{
    Signed, Signer as _,
    bistro::{Commitment, Committing, Evidence, Label, Nonce, Receipt, Refusal, Sheet, Stamp},
};

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
}

impl Item {
    /// Reads the file, and what was kept of an earlier call; keeps the nonce before it is used.
    ///
    /// # Errors
    /// If a file cannot be read, has changed since it was committed to, or if the receipt of
    /// another submission is in the way.
    pub fn open(
        file: &Path,
        args: &Args,
        identity: &Identity,
        target: &Target,
    ) -> anyhow::Result<Self> {
        let receipt = place(file, args.receipts.as_deref())?;
        let kept = load(&receipt)?;
        let beside = kept.is_some();
        let client = identity.key.id();
        if let Some(kept) = kept {
            let other = match other(&kept, target, client) {
                None if is_of(&kept, file)? => return Ok(Self::new(file, receipt, kept)),
                None => "the file has changed since it was committed to (bring the old one back \
                         to go on)"
                    .to_owned(),
                Some(other) => other,
            };
            check_in_the_way(&kept, &receipt, &other, args.anew)?;
        }
        // An earlier call has begun this one, and its stamp may be on its way.
        if let Some(begun) = load(&beside_of(&receipt))?.filter(|_| beside)
            && other(&begun, target, client).is_none()
            && is_of(&begun, file)?
        {
            return Ok(Self { beside, ..Self::new(file, receipt, begun) });
        }
        let nonce = new_nonce()?;
        let evidence = Evidence {
            drop_box: target.drop_box.clone(),
            destination: target.port.key,
            client,
            label: label(file)?,
            commitment: commitment(file, &nonce, client)?,
            nonce: Some(nonce),
            stamp: None,
            receipt: None,
            sheet: None,
            roster: identity.roster.clone(),
        };
        let item = Self { beside, ..Self::new(file, receipt, evidence) };
        item.save()?;
        Ok(item)
    }

    fn new(file: &Path, receipt: PathBuf, evidence: Evidence) -> Self {
        Self { file: file.to_owned(), receipt, evidence, why: None, late: false, beside: false }
    }

    /// That no two files would have one receipt: one of them would be lost.
    ///
    /// # Errors
    /// Which, and what to do.
    pub fn check_places(files: &[PathBuf], receipts: Option<&Path>) -> anyhow::Result<()> {
        let mut seen = BTreeMap::new();
        for file in files {
            let at = place(file, receipts)?;
            let Some(other) = seen.insert(at.clone(), file) else { continue };
            let (a, b, at) = (printable(other), printable(file), printable(&at));
            if other == file {
                bail!("{a} is named twice");
            }
            bail!(
                "{a} and {b} have the same name, and would both have the receipt {at}: keep the \
                 receipts beside the files (without --receipts), or submit one of them by itself \
                 with another --receipts DIR"
            )
        }
        Ok(())
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
        let was_beside = std::mem::take(&mut self.beside);
        self.save()?;
        if was_beside {
            // What cannot be removed is of the same submission, and read by nobody.
            _ = std::fs::remove_file(beside_of(&self.receipt));
        }
        Ok(())
    }

    /// The destination has said no.
    pub fn refused(&mut self, refusal: &Refusal) {
        self.late = matches!(refusal, Refusal::Late { .. });
        self.why = Some(format!("refused: {refusal}"));
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

    fn save(&self) -> anyhow::Result<()> {
        let file = match self.beside {
            true => beside_of(&self.receipt),
            false => self.receipt.clone(),
        };
        save_evidence(&file, &self.evidence)
            .with_context(|| format!("cannot keep {}", printable(&file)))
    }
}

fn load(receipt: &Path) -> anyhow::Result<Option<Evidence>> {
    load_evidence(receipt).with_context(|| {
        format!("{}: it is no whole receipt; move it away to begin anew", printable(receipt))
    })
}

/// Where a submission is kept until it may take another's place.
fn beside_of(receipt: &Path) -> PathBuf {
    let mut name = receipt.as_os_str().to_owned();
    name.push(".anew");
    name.into()
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
        () if kept.nonce.is_none() => {
            Some("its line `nonce` was taken out, so that it cannot be gone on with".to_owned())
        }
        () => None,
    }
}

/// Whether this file is what was committed to.
fn is_of(kept: &Evidence, file: &Path) -> anyhow::Result<bool> {
    let Some(nonce) = &kept.nonce else { return Ok(false) };
    Ok(commitment(file, nonce, kept.client)? == kept.commitment)
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

/// `FILE.receipt`, beside the file or in the given directory.
fn place(file: &Path, dir: Option<&Path>) -> anyhow::Result<PathBuf> {
    let name = file.file_name().with_context(|| format!("{} is no file", printable(file)))?;
    let mut name = OsString::from(name);
    name.push(".receipt");
    Ok(match dir {
        Some(dir) => dir.join(name),
        None => file.with_file_name(name),
    })
}

fn label(file: &Path) -> anyhow::Result<Label> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    Label::near(&name).with_context(|| format!("`{}` has no name to submit", printable(file)))
}

/// Reads all of it.
///
/// # Errors
/// The system's.
pub fn commitment(file: &Path, nonce: &Nonce, client: NodeId) -> anyhow::Result<Commitment> {
    let cannot = || format!("cannot read {}", printable(file));
    let mut opened = File::open(file).with_context(cannot)?;
    if !opened.metadata().with_context(cannot)?.is_file() {
        bail!("{} is no file: pack a directory, e.g. with `tar`, and submit that", printable(file));
    }
    let mut committing = Committing::new(nonce, &client);
    let mut buffer = vec![0; 1 << 20];
    loop {
        match opened.read(&mut buffer).with_context(cannot)? {
            0 => return Ok(committing.finish()),
            n => committing.update(&buffer[..n]),
        }
    }
}
