//! From the members in the database to the roster that everybody has.

use crate::{
    Config, Event, Oracle, OracleError, Refusal,
    join::admissible,
    oracle::Newest,
    store::{StoreError, Write},
};
use std::{sync::Arc, time::Duration};
use thalweg_net::{Ed25519, PrivateKey};
use thalweg_units::WallTime;
use thalweg_wire::{
    Destination, Signed,
    mesh::{Member, Roster, Rule},
};

/// A roster holds from so long before it is made: a member whose clock is this far behind
/// still takes it. Twice what hosts without NTP drift in a week at 100 ppm, and far
/// less than what a revocation or an expiry is about.
pub(crate) const BEFORE: Duration = Duration::from_secs(120);

/// The next version: above the last, and not below the date in seconds, so that a
/// database that was restored from a backup does not fall behind what members have.
fn next_version(last: u64, now: WallTime) -> u64 {
    last.saturating_add(1).max(now.as_unix_nanos() / 1_000_000_000)
}

pub(crate) fn later(date: WallTime, by: Duration) -> WallTime {
    let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
    WallTime::from_unix_nanos(date.as_unix_nanos().saturating_add(by))
}

pub(crate) fn earlier(date: WallTime, by: Duration) -> WallTime {
    let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
    WallTime::from_unix_nanos(date.as_unix_nanos().saturating_sub(by))
}

/// Signs a roster of what the transaction sees, and keeps it in the database.
pub(crate) async fn sign_next(
    write: &mut Write<'_>,
    key: &PrivateKey,
    config: &Config,
) -> Result<Newest, OracleError> {
    let now = config.clock.now();
    let mesh = write.mesh().await?.ok_or_else(|| StoreError::empty(write.place()))?;
    let roster = Roster {
        version: next_version(mesh.version, now),
        not_before: earlier(now, BEFORE),
        expiry: later(now, config.validity),
        members: write.members().await?,
        rules: mesh.rules,
    };
    let bytes = Signed::sign(roster, key).encode();
    // Nothing comes out that members would not read.
    let roster = Signed::<Roster>::open(&bytes, &Ed25519)?.into_value();
    write.keep(roster.version, &bytes).await?;
    Ok(Newest { roster, bytes: bytes.into() })
}

impl Oracle {
    /// Signs, commits, publishes: in this order, so that nobody ever sees a version that
    /// a crash could make us give to another roster.
    pub(crate) async fn publish(&self, mut write: Write<'_>) -> Result<Arc<Newest>, OracleError> {
        let newest = sign_next(&mut write, &self.inner.key, &self.inner.config).await?;
        write.commit().await?;
        self.set_due(false);
        let newest = Arc::new(newest);
        self.announce(&newest);
        self.keep_copy(&newest).await;
        Ok(newest)
    }

    /// Gives the roster to all who wait for one, if it is newer.
    pub(crate) fn announce(&self, newest: &Arc<Newest>) {
        let changed = self.inner.newest.send_if_modified(|current| {
            let newer = newest.roster.version > current.roster.version;
            if newer {
                *current = newest.clone();
            }
            newer
        });
        if changed {
            self.announce_bytes();
            self.inner.sightings.retain(&newest.roster);
            self.tell(&Event::Published {
                version: newest.roster.version,
                members: newest.roster.members.len(),
                expiry: newest.roster.expiry,
            });
        }
    }

    /// The newest bytes, also if another task was faster with a newer roster.
    fn announce_bytes(&self) {
        self.inner.bytes.send_modify(|bytes| *bytes = self.newest().bytes.clone());
    }

    /// Makes these the rules; publishes a new version if they differ from the ones that are there.
    ///
    /// # Errors
    /// [`OracleError`], nothing changed.
    pub async fn set_rules(&self, rules: Vec<Rule>) -> Result<(), OracleError> {
        if rules.len() > Roster::MAX_RULES {
            let most = Roster::MAX_RULES;
            return Err(Refusal::Full(format!("more than {most} rules")).into());
        }
        let mut write = self.begin().await?;
        if write.mesh().await?.is_some_and(|mesh| mesh.rules == rules) {
            return Ok(());
        }
        write.set_rules(&rules).await?;
        write.note("rules", "mesh", "local", self.now()).await?;
        self.publish(write).await.map(drop)
    }

    /// Makes these the addresses of this oracle's own node; publishes if they differ.
    ///
    /// # Errors
    /// [`OracleError`], nothing changed.
    pub async fn set_addresses(&self, addresses: Vec<Destination>) -> Result<(), OracleError> {
        let mut write = self.begin().await?;
        let members = write.members().await?;
        let own = members.into_iter().find(|m| m.holds(&self.inner.node));
        let own = own.ok_or(Refusal::NotListed(self.inner.node))?;
        if own.addresses == addresses {
            return Ok(());
        }
        let moved = Member { addresses, ..own };
        admissible(&moved, None)?;
        write.set_addresses(&moved).await?;
        write.note("addresses", moved.name.as_str(), "local", self.now()).await?;
        self.publish(write).await.map(drop)
    }

    /// Looks whether another process has published, and takes that over.
    pub(crate) async fn refresh(&self) -> Result<(), OracleError> {
        let version = self.inner.store.version().await?;
        if version.is_none_or(|version| version <= self.newest().roster.version) {
            return Ok(());
        }
        let mesh = self.inner.store.mesh().await?;
        let signed = mesh.map(|mesh| mesh.signed).unwrap_or_default();
        let newest = Arc::new(read_signed(signed, &self.inner.key)?);
        self.announce(&newest);
        Ok(())
    }
}

/// Reads a roster that this mesh's key has signed.
pub(crate) fn read_signed(bytes: Vec<u8>, key: &PrivateKey) -> Result<Newest, OracleError> {
    use thalweg_wire::{SignedError, Signer as _};
    let signed = Signed::<Roster>::open(&bytes, &Ed25519)?;
    if signed.signer() != key.id() {
        let (domain, signer) = ("roster 1", signed.signer());
        return Err(SignedError::Signature { domain, signer }.into());
    }
    Ok(Newest { roster: signed.into_value(), bytes: bytes.into() })
}
