//! Judges what evidence proves, given a set of trusted keys.

use super::{Evidence, show_date};
use crate::{
    Signed,
    mesh::{Name, Roster},
};
use thalweg_units::{NodeId, WallTime};

/// The keys whose owners the verifier knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust(Vec<String>);

impl Trust {
    /// The minimum number of digits that identify a key: 128 bits, so that nobody can find another key with the same
    /// digits.
    pub const LEAST_DIGITS: usize = 32;

    /// Adds a trusted key, given by its hexadecimal digits or the first of them.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn add(&mut self, key: &str) -> Result<(), String> {
        let digits = key.bytes().all(|b| b.is_ascii_hexdigit());
        if !digits || !(Self::LEAST_DIGITS..=64).contains(&key.len()) {
            let least = Self::LEAST_DIGITS;
            return Err(format!(
                "a key is 64 hexadecimal digits, or at least the first {least} of \
                                them"
            ));
        }
        self.0.push(key.to_ascii_lowercase());
        Ok(())
    }

    /// Whether this key is trusted.
    pub fn has(&self, key: &NodeId) -> bool {
        let text = key.to_string();
        self.0.iter().any(|known| text.starts_with(known.as_str()))
    }
}

/// Why a key's claimed owner is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrustBasis {
    /// The key is one of the trusted keys.
    Given,
    /// A roster that was valid at the time of the stamp lists the key, and the mesh's key is trusted.
    Mesh,
    /// The box's sheet lists the key, and the destination's key is believed.
    Sheet,
    /// The owner is not believed.
    Not,
}

/// What evidence proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The trust in the destination's key.
    pub destination: TrustBasis,
    /// The trust in the key of the node with the data; `None` without a receipt.
    pub node: Option<TrustBasis>,
    pub proven: Vec<String>,
    /// The unproven statements, and why they are not proven.
    pub unproven: Vec<String>,
}

impl Verdict {
    /// Whether both steps are proven.
    pub fn is_whole(&self) -> bool {
        self.unproven.is_empty()
    }
}

impl Evidence {
    /// Judges what the evidence proves, given that these keys are trusted.
    pub fn judge(&self, trust: &Trust) -> Verdict {
        let destination = self.trust_basis(&self.destination, None, trust);
        let node = self.receipt.as_ref().map(|receipt| {
            let (key, name) = (receipt.signer(), &receipt.value().node);
            match key == self.destination {
                true => destination,
                false => self.node_trust_basis(&key, name, destination, trust),
            }
        });
        let mut verdict = Verdict { destination, node, proven: Vec::new(), unproven: Vec::new() };
        self.judge_stamp(&mut verdict);
        self.judge_receipt(&mut verdict);
        verdict
    }

    fn judge_stamp(&self, verdict: &mut Verdict) {
        let Some(stamp) = self.stamp.as_ref().map(Signed::value) else {
            let what = "that data was committed to: the destination has not stamped a commitment \
                        yet";
            return verdict.unproven.push(what.into());
        };
        let says = format!(
            "key {} committed to `{}` ({} bytes) at {}, before the deadline {}, as number {} of `{}`",
            stamp.client,
            stamp.label,
            stamp.commitment.content_size(),
            show_date(stamp.time),
            show_date(stamp.until),
            stamp.number,
            stamp.drop_box,
        );
        let key = self.destination;
        match verdict.destination {
            TrustBasis::Not => verdict.unproven.push(format!(
                "that key {key} is the destination's: give its key, or the mesh's, with --key. The \
                 owner of that key states: {says}"
            )),
            _ => verdict.proven.push(says),
        }
    }

    fn judge_receipt(&self, verdict: &mut Verdict) {
        let Some(receipt) = &self.receipt else {
            return verdict
                .unproven
                .push("that the data was delivered: there is no receipt".into());
        };
        let receipt_content = receipt.value();
        let says = format!(
            "node `{}` had data that matches this commitment, at {} by its own clock",
            receipt_content.node,
            show_date(receipt_content.time),
        );
        match verdict.node {
            Some(TrustBasis::Not) | None => verdict.unproven.push(format!(
                "that key {} is node `{}`'s. The owner of that key states: {says}",
                receipt.signer(),
                receipt_content.node,
            )),
            Some(_) => verdict.proven.push(says),
        }
    }

    fn trust_basis(&self, key: &NodeId, name: Option<&Name>, trust: &Trust) -> TrustBasis {
        if trust.has(key) {
            return TrustBasis::Given;
        }
        let time = self.stamp.as_ref().map(|stamp| stamp.value().time);
        match self.roster.as_ref().filter(|roster| trust.has(&roster.claimed_root())) {
            Some(roster) if has_member(roster.value(), key, name, time) => TrustBasis::Mesh,
            _ => TrustBasis::Not,
        }
    }

    fn node_trust_basis(
        &self,
        key: &NodeId,
        name: &Name,
        destination: TrustBasis,
        trust: &Trust,
    ) -> TrustBasis {
        let known = self.trust_basis(key, Some(name), trust);
        let listed = |sheet: &Signed<super::Sheet>| {
            sheet.value().node(key).is_some_and(|node| node.name == *name)
        };
        let by_sheet = destination != TrustBasis::Not && self.sheet.as_ref().is_some_and(listed);
        if known == TrustBasis::Not && by_sheet { TrustBasis::Sheet } else { known }
    }
}

/// Whether the roster was valid at that time and lists the key.
fn has_member(roster: &Roster, key: &NodeId, name: Option<&Name>, time: Option<WallTime>) -> bool {
    let held = time.is_some_and(|time| roster.check(time).is_ok());
    let member = roster.members.iter().find(|member| member.node == Some(*key));
    held && member.is_some_and(|member| name.is_none_or(|name| member.name == *name))
}
