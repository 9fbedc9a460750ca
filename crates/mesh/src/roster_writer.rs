//! Stores the newest roster in a file, by a thread of its own: a roster is in force before it is on disk (decision
//! 0017).

use super::{
    Membership, OfferOutcome, RosterError,
    membership::{Inner, StoredRoster},
};
use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel},
    thread,
    time::Duration,
};
use thalweg_base::durable;
use thalweg_net::Ed25519;
use thalweg_units::NodeId;
use thalweg_wire::{
    Signable as _, Signed,
    mesh::{Roster, RosterRank},
};

/// The pause after a failed write: a full disk is seldom emptied sooner.
const AGAIN: Duration = Duration::from_secs(60);

/// The stored roster was torn or altered, and was moved away; a new one must be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RosterDamage {
    /// Where the damaged file is now.
    pub aside: PathBuf,
    /// What is wrong with it.
    pub why: String,
}

impl std::fmt::Display for RosterDamage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { aside, why } = self;
        let aside = aside.display();
        write!(
            f,
            "the stored roster was damaged ({why}) and was moved to {aside}; it is requested from \
             the oracle again"
        )
    }
}

/// Puts rosters in force at once, and has a thread of its own store them.
///
/// A roster is in force when [`RosterWriter::take`] returns, however busy the disk or the runtime's pool of blocking
/// threads is. At most one wake-up waits, and the thread always writes the newest roster, so that rosters in between
/// are never written. The thread ends with the keeper.
#[derive(Debug)]
pub struct RosterWriter {
    membership: Membership,
    wake: SyncSender<()>,
}

impl RosterWriter {
    /// Starts the thread, which calls `failed` for each roster that cannot be stored.
    pub fn start(membership: Membership, failed: impl Fn(RosterError) + Send + 'static) -> Self {
        // One is enough: a second message before the thread looks would ask for the same.
        let (wake, woken) = sync_channel(1);
        let kept = membership.clone();
        // Without a thread `take` reports that nothing is stored.
        _ = thread::Builder::new()
            .name("roster".to_owned())
            .spawn(move || keep_all(&kept, &woken, failed));
        Self { membership, wake }
    }

    /// Puts a signed roster in force, as [`Membership::offer`], without waiting for the disk.
    ///
    /// # Errors
    /// [`RosterError`]; after [`RosterError::Keep`] the roster is in force.
    pub fn take(&self, signed: &[u8]) -> Result<OfferOutcome, RosterError> {
        let offered = self.membership.publish(signed)?;
        match self.wake.try_send(()) {
            Err(TrySendError::Disconnected(())) => Err(self.membership.0.keep_error()(
                io::Error::other("the thread that stores the roster has ended"),
            )),
            _ => Ok(offered),
        }
    }
}

/// Writes whenever it is woken, and again a while after a failure.
fn keep_all(membership: &Membership, woken: &Receiver<()>, failed: impl Fn(RosterError)) {
    let mut wait = None;
    loop {
        let next = match wait {
            None => woken.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(wait) => woken.recv_timeout(wait),
        };
        if next == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        wait = membership.keep().map_err(&failed).err().map(|()| AGAIN);
    }
}

impl Membership {
    /// Writes the newest roster to the file, unless the file has that or a newer one.
    fn keep(&self) -> Result<(), RosterError> {
        let _turn = self.0.turn()?;
        self.0.write(self.0.catch_up())
    }
}

impl Inner {
    /// Waits for the turn among all processes and threads that write the file.
    pub(super) fn turn(&self) -> Result<Option<File>, RosterError> {
        self.file.as_deref().map(durable::lock_directory).transpose().map_err(self.keep_error())
    }

    /// Puts in force what another process of this host has stored meanwhile, if it is newer. Returns the rank and the
    /// bytes in the file.
    pub(super) fn catch_up(&self) -> Option<(RosterRank, Vec<u8>)> {
        // A file that cannot be read is about to be replaced.
        let (roster, signed) = read(&self.mesh, self.file.as_deref()?).ok()??;
        let (rank, mut newest) = (roster.rank(), self.lock());
        if self.check_newer(rank).is_ok() {
            self.note_fork(&newest, &roster);
            self.put(&mut newest, roster, &signed, true);
        }
        Some((rank, signed))
    }

    /// Replaces the file's content, which is `found`, by the newest roster. The caller has the turn.
    pub(super) fn write(&self, found: Option<(RosterRank, Vec<u8>)>) -> Result<(), RosterError> {
        let Some(file) = self.file.as_deref() else { return Ok(()) };
        let StoredRoster { signed: Some(signed), kept: false } = self.lock().clone() else {
            return Ok(());
        };
        match found {
            Some((_, kept)) if *kept == *signed => {}
            Some((rank, _)) if matches!(self.check_newer(rank), Err(RosterError::Forked(_))) => {
                return Err(RosterError::Forked(rank.version));
            }
            _ => durable::replace(file, &signed).map_err(self.keep_error())?,
        }
        let mut newest = self.lock();
        newest.kept |= newest.signed.as_deref() == Some(&*signed);
        Ok(())
    }

    fn keep_error(&self) -> impl Fn(io::Error) -> RosterError + use<> {
        let file = self.file.clone().unwrap_or_default();
        move |source| RosterError::Keep { file: file.clone(), source }
    }
}

pub(super) fn verify(mesh: &NodeId, signed: &[u8]) -> Result<Roster, RosterError> {
    let signed = Signed::<Roster>::open(signed, &Ed25519)?;
    signed.check_authority(mesh, &Ed25519)?;
    Ok(signed.into_value())
}

/// The stored roster and its signed bytes.
pub(super) fn read(mesh: &NodeId, file: &Path) -> Result<Option<(Roster, Vec<u8>)>, RosterError> {
    // The envelope adds a hundred bytes to the roster.
    let found = durable::read(file, Roster::MAX_BYTES + 128);
    let failed = |source| RosterError::Read { file: file.to_owned(), source };
    let Some(signed) = found.map_err(failed)? else { return Ok(None) };
    match verify(mesh, &signed) {
        Ok(roster) => Ok(Some((roster, signed))),
        Err(RosterError::Authority(why)) => {
            Err(RosterError::Foreign { file: file.to_owned(), why: Box::new(why), mesh: *mesh })
        }
        Err(error) => Err(error),
    }
}

pub(super) fn set_aside(
    file: &Path,
    why: &thalweg_wire::SignedError,
) -> Result<RosterDamage, RosterError> {
    let failed = |source| RosterError::Read { file: file.to_owned(), source };
    let aside = durable::set_aside(file).map_err(failed)?;
    Ok(RosterDamage { aside, why: why.to_string() })
}
