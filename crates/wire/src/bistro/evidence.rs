//! Evidence of a submission: a text that the client keeps and anybody can verify.

use super::{
    Commitment, ContentHash, EnvelopeKeys, Label, Nonce, Receipt, Sheet, Stamp, StampId,
    commitment::hex32, date::show_date,
};
use crate::{
    Signable, Signed, Verifier,
    mesh::{Name, Roster},
};
use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use std::fmt;
use thalweg_units::NodeId;
use thiserror::Error;

/// The first line of the text.
const HEAD: &str = "thalweg receipt 2";

/// A submission in its present state: committed, stamped, or received by a node.
///
/// Printed as lines of a word and a value. The lines for people repeat the content of the signed ones.
/// [`Evidence::read`] accepts the text only if all of it agrees: each signature must be valid, and the text must be
/// byte for byte the one that these values print as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    pub drop_box: Name,
    /// The key of the destination's node.
    pub destination: NodeId,
    /// The client's key, which makes the commitment.
    pub client: NodeId,
    /// The client's name for the data.
    pub label: Label,
    /// The data's size and hidden hash.
    pub commitment: Commitment,
    /// The secret that opens the commitment. Its line may be removed before the text is shared.
    pub nonce: Option<Nonce>,
    /// The keys that encrypt and decrypt the data. Their line may be removed, like the nonce's.
    pub keys: Option<EnvelopeKeys>,
    /// The hash of the data itself. Its line may be removed, like the nonce's, since it identifies equal data of
    /// others.
    pub content: Option<ContentHash>,
    /// The stamp of step 1, signed by the destination.
    pub stamp: Option<Signed<Stamp>>,
    /// The receipt of step 2, signed by the node that has the data.
    pub receipt: Option<Signed<Receipt>>,
    /// The destination's list of nodes that take data.
    pub sheet: Option<Signed<Sheet>>,
    /// The mesh's list of members, by which the mesh's key vouches for the destination and the node.
    pub roster: Option<Signed<Roster>>,
}

/// The text is altered or invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field}: {why}")]
pub struct EvidenceError {
    /// The word of the invalid line.
    pub field: String,
    pub why: String,
}

fn wrong(field: &str, why: impl fmt::Display) -> EvidenceError {
    EvidenceError { field: field.to_owned(), why: why.to_string() }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}")?;
        self.lines().iter().try_for_each(|(word, value)| writeln!(f, "{word} {value}"))
    }
}

fn encoded<T: Signable>(signed: &Signed<T>) -> String {
    BASE64URL_NOPAD.encode(&signed.encode())
}

impl Evidence {
    /// The lines after the first.
    fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![
            ("box", self.drop_box.to_string()),
            ("destination", self.destination.to_string()),
            ("file", self.label.to_string()),
            ("size", self.commitment.content_size().to_string()),
            ("encrypted", self.commitment.size.to_string()),
            ("commitment", self.commitment.hash_text()),
            ("client", self.client.to_string()),
        ];
        if let Some(stamp) = self.stamp.as_ref().map(Signed::value) {
            lines.push(("committed", show_date(stamp.time)));
            lines.push(("deadline", show_date(stamp.until)));
            lines.push(("number", stamp.number.to_string()));
        }
        if let Some(receipt) = &self.receipt {
            lines.push(("received", show_date(receipt.value().time)));
            lines.push(("node", format!("{} {}", receipt.value().node, receipt.signer())));
        }
        let nonce = self.nonce.map(|nonce| HEXLOWER.encode(nonce.as_bytes()));
        lines.extend(nonce.map(|text| ("nonce", text)));
        lines.extend(self.content.map(|hash| ("blake3", hash.to_string())));
        lines.extend(self.keys.map(|keys| ("keys", keys.to_string())));
        lines.extend(self.stamp.as_ref().map(|s| ("stamp", encoded(s))));
        lines.extend(self.receipt.as_ref().map(|s| ("receipt", encoded(s))));
        lines.extend(self.sheet.as_ref().map(|s| ("sheet", encoded(s))));
        lines.extend(self.roster.as_ref().map(|s| ("roster", encoded(s))));
        lines
    }

    /// Parses evidence and verifies its signatures.
    ///
    /// # Errors
    /// The first invalid field. Who owns the keys is not checked here; see [`Evidence::judge`].
    pub fn read(text: &str, verifier: &impl Verifier) -> Result<Self, EvidenceError> {
        let lines = split(text)?;
        let evidence = Self::from_lines(&EvidenceLines(&lines), verifier)?;
        evidence.check_consistency()?;
        if let Some(roster) = &evidence.roster {
            roster.root(verifier).map_err(|why| wrong("roster", why))?;
        }
        let expected = evidence.lines();
        let difference =
            expected.iter().zip(&lines).find(|((w, v), (word, value))| w != word || v != value);
        if let Some(((word, value), (found, _))) = difference {
            return Err(match word == found {
                true => wrong(word, format!("the signed value is `{value}`")),
                false => wrong(found, format!("`{word}` is expected here")),
            });
        }
        if let Some((word, _)) = lines.get(expected.len()) {
            return Err(wrong(word, "this line is not expected"));
        }
        match evidence.to_string() == text {
            true => Ok(evidence),
            false => Err(wrong("text", "line ends or spaces were altered")),
        }
    }

    /// The box and the destination of a text that begins like evidence. The text is not verified and may be incomplete.
    pub fn read_names(text: &str) -> Option<(Name, NodeId)> {
        let mut lines = text.trim_start_matches('\u{feff}').lines();
        lines.next().filter(|line| *line == HEAD)?;
        let mut value = |word| lines.next()?.strip_prefix(word)?.strip_prefix(' ');
        Some((value("box")?.parse().ok()?, value("destination")?.parse().ok()?))
    }

    fn from_lines(
        lines: &EvidenceLines<'_>,
        verifier: &impl Verifier,
    ) -> Result<Self, EvidenceError> {
        lines.required("size")?;
        let size =
            lines.required("encrypted")?.parse::<u64>().map_err(|e| wrong("encrypted", e))?;
        Ok(Self {
            drop_box: lines.parsed("box")?,
            destination: lines.parsed("destination")?,
            client: lines.parsed("client")?,
            label: lines.parsed("file")?,
            commitment: Commitment { size, hash: lines.hash("commitment")? },
            nonce: lines.optional("nonce")?,
            keys: lines.optional("keys")?,
            content: lines.optional("blake3")?,
            stamp: lines.signed("stamp", verifier)?,
            receipt: lines.signed("receipt", verifier)?,
            sheet: lines.signed("sheet", verifier)?,
            roster: lines.signed("roster", verifier)?,
        })
    }

    /// Checks that all parts are about the same submission.
    fn check_consistency(&self) -> Result<(), EvidenceError> {
        if let Some(stamp) = &self.stamp {
            let stamped = stamp.value();
            let same = |field, same: bool| {
                let why = "the signed stamp has another value";
                if same { Ok(()) } else { Err(wrong(field, why)) }
            };
            same("box", stamped.drop_box == self.drop_box)?;
            same("destination", stamp.signer() == self.destination)?;
            same("client", stamped.client == self.client)?;
            same("file", stamped.label == self.label)?;
            same("encrypted", stamped.commitment.size == self.commitment.size)?;
            same("commitment", stamped.commitment == self.commitment)?;
        }
        if let Some(receipt) = &self.receipt {
            let id = self.stamp.as_ref().map(StampId::from_stamp);
            if id != Some(receipt.value().stamp) {
                return Err(wrong("receipt", "it is for another stamp"));
            }
        }
        let sheet = self.sheet.as_ref();
        if sheet.is_some_and(|s| s.signer() != self.destination) {
            return Err(wrong("sheet", "it is signed by a key other than the destination's"));
        }
        match sheet.is_some_and(|s| s.value().drop_box != self.drop_box) {
            true => Err(wrong("sheet", "it is for another drop box")),
            false => Ok(()),
        }
    }
}

/// Splits the lines after the first into words and values.
fn split(text: &str) -> Result<Vec<(&str, &str)>, EvidenceError> {
    let mut lines = text.lines();
    if lines.next() != Some(HEAD) {
        return Err(wrong("text", format!("a receipt begins with the line `{HEAD}`")));
    }
    let pair = |line: &str| wrong("text", format!("`{}` is not a word and a value", excerpt(line)));
    lines.map(|line| line.split_once(' ').ok_or_else(|| pair(line))).collect()
}

/// The beginning of untrusted text, escaped for printing.
fn excerpt(text: &str) -> String {
    text.chars().take(40).flat_map(char::escape_debug).collect()
}

/// The words and values of the lines.
struct EvidenceLines<'a>(&'a [(&'a str, &'a str)]);

impl EvidenceLines<'_> {
    fn get(&self, word: &str) -> Option<&str> {
        self.0.iter().find(|(w, _)| *w == word).map(|(_, value)| *value)
    }

    fn required(&self, word: &str) -> Result<&str, EvidenceError> {
        self.get(word).ok_or_else(|| wrong(word, "the line is missing"))
    }

    fn parsed<T: std::str::FromStr<Err: fmt::Display>>(
        &self,
        word: &str,
    ) -> Result<T, EvidenceError> {
        self.required(word)?.parse().map_err(|e| wrong(word, e))
    }

    fn optional<T: std::str::FromStr<Err: fmt::Display>>(
        &self,
        word: &str,
    ) -> Result<Option<T>, EvidenceError> {
        self.get(word).map(|_| self.parsed(word)).transpose()
    }

    fn hash(&self, word: &str) -> Result<[u8; 32], EvidenceError> {
        hex32(self.required(word)?).ok_or_else(|| wrong(word, "64 hexadecimal digits are expected"))
    }

    fn signed<T: Signable>(
        &self,
        word: &str,
        verifier: &impl Verifier,
    ) -> Result<Option<Signed<T>>, EvidenceError> {
        let Some(text) = self.get(word) else { return Ok(None) };
        let bytes = BASE64URL_NOPAD.decode(text.as_bytes()).map_err(|e| wrong(word, e))?;
        Signed::open(&bytes, verifier).map(Some).map_err(|e| wrong(word, e))
    }
}
