//! The roster: the list of members that all nodes keep, signed for the mesh (decisions 0015, 0103).

use super::{Member, Name, Role, Rule, SignedEndorsement, Tag};
use crate::{DecodeError, Signable};
use serde::{Deserialize, Serialize};
use std::{cmp::Ordering, collections::BTreeSet, time::Duration};
use thalweg_units::{NodeId, WallTime};
use thiserror::Error;

/// A version of the list of members of a mesh.
///
/// Canonical: members are sorted by name; names and keys are unique. Only listed members belong to the mesh, so a
/// member is revoked by omitting it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roster {
    /// The version, which grows with every change. A lower one is never accepted after a higher one.
    pub version: u64,
    /// The date before which the roster is invalid.
    pub not_before: WallTime,
    /// The date from which on the roster is invalid.
    pub expiry: WallTime,
    /// The members, sorted by name.
    pub members: Vec<Member>,
    /// The rules, in order; all matching rules apply.
    pub rules: Vec<Rule>,
    /// The root key's endorsement of the key that signs this roster; `None`: the root key itself signs it.
    #[serde(skip)]
    pub endorsement: Option<SignedEndorsement>,
    /// The roster before this one; `None` in a mesh's first roster.
    #[serde(skip)]
    pub predecessor: Option<Predecessor>,
}

/// The roster that another one follows, so that two successors of one roster show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Predecessor {
    /// Its version.
    pub version: u64,
    /// The BLAKE3 hash of its signed bytes.
    pub hash: [u8; 32],
}

/// What a roster may have after the fields of the first format. Rosters without it are encoded as in that format.
#[derive(Serialize, Deserialize)]
struct Extension {
    endorsement: Option<SignedEndorsement>,
    predecessor: Option<Predecessor>,
}

/// The order of a mesh's rosters: first by the number of the signing key, then by version. A roster of a replaced key
/// never ranks above one of its successor, whatever version the owner of the old key gives it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RosterRank {
    /// The number of the endorsement; 0 without one.
    pub endorsement: u64,
    /// The version.
    pub version: u64,
}

impl Predecessor {
    /// The predecessor with these signed bytes.
    pub fn new(version: u64, signed: &[u8]) -> Self {
        Self { version, hash: *blake3::hash(signed).as_bytes() }
    }
}

/// Why a roster is not valid now, according to this host's clock.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RosterFault {
    /// The roster is not valid yet.
    #[error(
        "the roster becomes valid only in {0:?}: this host's clock is at least that far behind the \
         oracle's; set the clock"
    )]
    ClockBehind(Duration),
    /// The roster has expired.
    #[error(
        "the roster expired {0:?} ago: no oracle could be reached since then, or this host's clock \
         is that far ahead; check the clock and the connection to the oracle"
    )]
    Expired(Duration),
}

impl Roster {
    /// The maximum number of members: thirty times the size that a mesh is designed for.
    pub const MAX_MEMBERS: usize = 10_000;
    /// The maximum number of rules. Rules refer to tags, so that a few rules suffice for many members. A roster with
    /// more is not decoded.
    pub const MAX_RULES: usize = 256;

    /// The roster's place in the order of the mesh's rosters.
    pub fn rank(&self) -> RosterRank {
        let endorsement = self.endorsement.map_or(0, |signed| signed.endorsement().number);
        RosterRank { endorsement, version: self.version }
    }

    /// The key that signs for the mesh with this root key while this roster is in force: rosters and orders to measure.
    pub fn signing_key(&self, root: NodeId) -> NodeId {
        self.endorsement.map_or(root, |signed| signed.endorsement().key)
    }

    /// Whether this roster, which ranks above `before` with these signed bytes, does not follow from it: somebody has
    /// continued from an older one, or from none. False if rosters between the two are unknown.
    pub fn contradicts(&self, before: &Self, signed: &[u8]) -> bool {
        let Some(predecessor) = self.predecessor else { return before.predecessor.is_some() };
        match predecessor.version.cmp(&before.version) {
            Ordering::Less => true,
            Ordering::Equal => predecessor != Predecessor::new(before.version, signed),
            Ordering::Greater => false,
        }
    }

    /// The member with this key.
    pub fn by_key(&self, key: &NodeId) -> Option<&Member> {
        self.members.iter().find(|m| m.holds(key))
    }

    /// The member with this name.
    pub fn by_name(&self, name: &Name) -> Option<&Member> {
        let at = self.members.binary_search_by(|m| m.name.cmp(name)).ok()?;
        self.members.get(at)
    }

    /// The relays that have a daemon and an address at which they are dialled.
    pub fn relays(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|m| m.is(Role::Relay) && m.node.is_some() && m.is_dialled())
    }

    /// The rules that apply to a client and a relay with these tags.
    pub fn rules_for<'a>(
        &'a self,
        client: &'a BTreeSet<Tag>,
        relay: &'a BTreeSet<Tag>,
    ) -> impl Iterator<Item = &'a Rule> {
        self.rules.iter().filter(|rule| rule.applies(client, relay))
    }

    /// Checks that the roster is valid at `now`.
    ///
    /// # Errors
    /// [`RosterFault`], with the time until the roster is valid, or since it expired.
    pub fn check(&self, now: WallTime) -> Result<(), RosterFault> {
        let (now, from, until) =
            (now.as_unix_nanos(), self.not_before.as_unix_nanos(), self.expiry.as_unix_nanos());
        if now < from {
            return Err(RosterFault::ClockBehind(Duration::from_nanos(from - now)));
        }
        if now >= until {
            return Err(RosterFault::Expired(Duration::from_nanos(now - until)));
        }
        Ok(())
    }

    /// Checks the order and the bounds of the lists.
    fn is_canonical(&self) -> Result<(), DecodeError> {
        let sorted = self.members.windows(2).all(|pair| pair[0].name < pair[1].name);
        let keys = || self.members.iter().flat_map(|m| m.node.into_iter().chain([m.client]));
        if !sorted {
            return Err(DecodeError::Invalid("the members are not sorted by unique names"));
        }
        if keys().collect::<BTreeSet<_>>().len() != keys().count() {
            return Err(DecodeError::Invalid("a key occurs twice"));
        }
        let bounded = |m: &Member| {
            m.addresses.len() <= Member::MAX_ADDRESSES && m.tags.len() <= Member::MAX_TAGS
        };
        let within = self.members.len() <= Self::MAX_MEMBERS
            && self.rules.len() <= Self::MAX_RULES
            && self.members.iter().all(bounded);
        if within { Ok(()) } else { Err(DecodeError::Invalid("a list is longer than allowed")) }
    }
}

impl Signable for Roster {
    const DOMAIN: &'static str = "roster 1";
    /// 10,000 members with two addresses each, or 3000 with the maximum number of addresses and tags; and rules.
    const MAX_BYTES: usize = 4 * 1024 * 1024;

    fn encode(&self, out: &mut Vec<u8>) {
        // Encoding these types to a vector cannot fail.
        if let Ok(bytes) = postcard::to_stdvec(self) {
            out.extend(bytes);
        }
        let &Self { endorsement, predecessor, .. } = self;
        if (endorsement, predecessor) != (None, None)
            && let Ok(bytes) = postcard::to_stdvec(&Extension { endorsement, predecessor })
        {
            out.extend(bytes);
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let unreadable = |_| DecodeError::Invalid("a field of the roster is not readable");
        let (mut roster, rest) = postcard::take_from_bytes::<Self>(bytes).map_err(unreadable)?;
        if !rest.is_empty() {
            let (extension, rest) =
                postcard::take_from_bytes::<Extension>(rest).map_err(unreadable)?;
            if !rest.is_empty() {
                return Err(DecodeError::TooLong(rest.len()));
            }
            let Extension { endorsement, predecessor } = extension;
            if (endorsement, predecessor) == (None, None) {
                return Err(DecodeError::Invalid("the roster's extension is empty"));
            }
            (roster.endorsement, roster.predecessor) = (endorsement, predecessor);
        }
        roster.is_canonical().map(|()| roster)
    }
}
