//! The list of members that all nodes keep, signed with the mesh's key.

use super::{Member, Name, Role, Rule, Tag};
use crate::{DecodeError, Signable};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, time::Duration};
use thalweg_units::{NodeId, WallTime};
use thiserror::Error;

/// The members of a mesh at one version.
///
/// Canonical: members sorted by name, names and keys unique. Whoever is not in
/// it does not belong to the mesh; to revoke is to leave out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roster {
    /// Grows with every change; a lower one is never accepted after a higher one.
    pub version: u64,
    /// Not valid before this date.
    pub not_before: WallTime,
    /// Not valid from this date on.
    pub expiry: WallTime,
    /// Sorted by name.
    pub members: Vec<Member>,
    /// In order; all that match apply.
    pub rules: Vec<Rule>,
}

/// Why a roster does not hold now, seen from this host's clock.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RosterFault {
    /// Its time has not come.
    #[error(
        "the roster is valid only in {0:?}: this host's clock is at least that far behind \
         the oracle's; set the clock"
    )]
    ClockBehind(Duration),
    /// Its time is over.
    #[error(
        "the roster expired {0:?} ago: no oracle was reached since, or this host's clock is \
         that far ahead; check the clock and the way to the oracle"
    )]
    Expired(Duration),
}

impl Roster {
    /// The most members: thirty times what the mesh is made for.
    pub const MAX_MEMBERS: usize = 10_000;
    /// The most rules. Rules are about tags, so that few serve many members; a roster with more is
    /// not decoded.
    pub const MAX_RULES: usize = 256;

    /// The member that holds this key.
    pub fn by_key(&self, key: &NodeId) -> Option<&Member> {
        self.members.iter().find(|m| m.holds(key))
    }

    /// The member with this name.
    pub fn by_name(&self, name: &Name) -> Option<&Member> {
        let at = self.members.binary_search_by(|m| m.name.cmp(name)).ok()?;
        self.members.get(at)
    }

    /// The members that relay and can be reached.
    pub fn relays(&self) -> impl Iterator<Item = &Member> {
        self.members
            .iter()
            .filter(|m| m.is(Role::Relay) && m.node.is_some() && !m.addresses.is_empty())
    }

    /// The rules for a client with these tags at a relay with those.
    pub fn rules_for<'a>(
        &'a self,
        client: &'a BTreeSet<Tag>,
        relay: &'a BTreeSet<Tag>,
    ) -> impl Iterator<Item = &'a Rule> {
        self.rules.iter().filter(|rule| rule.applies(client, relay))
    }

    /// Whether it holds at `now`.
    ///
    /// # Errors
    /// [`RosterFault`], with how far off the clock or the roster is.
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

    /// Whether the lists keep their order and bounds.
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
    /// 10,000 members with two addresses each, or 3000 with all that they can have; and rules.
    const MAX_BYTES: usize = 4 * 1024 * 1024;

    fn encode(&self, out: &mut Vec<u8>) {
        // Writing to a vector fails for no value of these types.
        if let Ok(bytes) = postcard::to_stdvec(self) {
            out.extend(bytes);
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (roster, rest) = postcard::take_from_bytes::<Self>(bytes)
            .map_err(|_| DecodeError::Invalid("a field of the roster is not readable"))?;
        if !rest.is_empty() {
            return Err(DecodeError::TooLong(rest.len()));
        }
        roster.is_canonical().map(|()| roster)
    }
}
