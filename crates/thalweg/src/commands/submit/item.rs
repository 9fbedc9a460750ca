//! One file on its way: what is kept of it.

use super::{Args, to::Identity};
use anyhow::{Context as _, bail};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};
use thalweg_node::drop_box::{Target, load_evidence, new_nonce, save_evidence};
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
}

impl Item {
    /// Reads the file, and what was kept of an earlier call; keeps the nonce before it is used.
    ///
    /// # Errors
    /// If a file cannot be read, or has changed since it was committed to.
    pub fn open(
        file: &Path,
        args: &Args,
        identity: &Identity,
        target: &Target,
    ) -> anyhow::Result<Self> {
        let receipt = place(file, args.receipts.as_deref())?;
        let kept = load_evidence(&receipt).with_context(|| {
            format!("{}: it is no whole receipt; move it away to begin anew", receipt.display())
        })?;
        let client = identity.key.id();
        let same = |e: &Evidence| {
            let here = e.destination == target.port.key && e.drop_box == target.drop_box;
            here && e.client == client
        };
        if let Some(kept) = kept.filter(same)
            && let Some(nonce) = kept.nonce
        {
            let is_same = commitment(file, &nonce, client)? == kept.commitment;
            if is_same {
                return Ok(Self::new(file, receipt, kept));
            }
            if kept.stamp.is_some() && !args.anew {
                bail!(
                    "{} has changed since it was committed to; bring the old one back, or commit \
                     to the new one as well with --anew (the old receipt is replaced)",
                    file.display()
                )
            }
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
        let item = Self::new(file, receipt, evidence);
        item.save()?;
        Ok(item)
    }

    fn new(file: &Path, receipt: PathBuf, evidence: Evidence) -> Self {
        Self { file: file.to_owned(), receipt, evidence, why: None, late: false }
    }

    /// Two files with one receipt would lose one of them.
    ///
    /// # Errors
    /// Which.
    pub fn check_labels(items: &[Self]) -> anyhow::Result<()> {
        let mut seen = BTreeMap::new();
        for item in items {
            if let Some(other) = seen.insert(&item.receipt, &item.file) {
                let (a, b) = (other.display(), item.file.display());
                bail!("{a} and {b} would have one receipt; submit them one after the other");
            }
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

    /// Keeps the destination's stamp.
    ///
    /// # Errors
    /// The disk's.
    pub fn stamped(&mut self, stamp: Signed<Stamp>) -> anyhow::Result<()> {
        self.evidence.label = stamp.value().label.clone();
        self.evidence.stamp = Some(stamp);
        self.save()
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
        save_evidence(&self.receipt, &self.evidence)
            .with_context(|| format!("cannot keep {}", self.receipt.display()))
    }
}

/// `FILE.receipt`, beside the file or in the given directory.
fn place(file: &Path, dir: Option<&Path>) -> anyhow::Result<PathBuf> {
    let name = file.file_name().with_context(|| format!("{} is no file", file.display()))?;
    let mut name = OsString::from(name);
    name.push(".receipt");
    Ok(match dir {
        Some(dir) => dir.join(name),
        None => file.with_file_name(name),
    })
}

fn label(file: &Path) -> anyhow::Result<Label> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    Label::near(&name).with_context(|| format!("`{}` has no name to submit", file.display()))
}

/// Reads all of it.
///
/// # Errors
/// The system's.
pub fn commitment(file: &Path, nonce: &Nonce, client: NodeId) -> anyhow::Result<Commitment> {
    let cannot = || format!("cannot read {}", file.display());
    let mut opened = File::open(file).with_context(cannot)?;
    if !opened.metadata().with_context(cannot)?.is_file() {
        bail!("{} is no file: pack a directory, e.g. with `tar`, and submit that", file.display());
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
