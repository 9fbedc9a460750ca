//! The file that keeps the newest roster, and the thread that writes it.

use super::{
    Membership, Offered, RosterError,
    membership::{Inner, Newest},
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
use thalweg_wire::{Signable as _, Signed, mesh::Roster};

/// How long after a failed write the next is tried: a full disk is seldom emptied sooner.
const AGAIN: Duration = Duration::from_secs(60);

/// The kept roster was torn or altered, and was set aside; a new one is to be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where the damaged file is now.
    pub aside: PathBuf,
    /// What is wrong with it.
    pub why: String,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { aside, why } = self;
        let aside = aside.display();
        write!(
            f,
            "the kept roster was damaged ({why}) and is now {aside}; the oracle is asked anew"
        )
    }
}

/// Takes rosters at once and has them kept by a thread of its own.
///
/// A roster is in force when [`Keeper::take`] returns, however busy the disk or the
/// runtime's pool of blocking threads is. One wake-up waits at most, and the thread always
/// writes the newest roster: what came in between is never written. It ends with the keeper.
#[derive(Debug)]
pub struct Keeper {
    membership: Membership,
    wake: SyncSender<()>,
}

impl Keeper {
    /// Starts the thread; `failed` is called there for each roster that cannot be kept.
    pub fn start(membership: Membership, failed: impl Fn(RosterError) + Send + 'static) -> Self {
        // One: whoever wakes the thread again before it looked wants the same of it.
        let (wake, woken) = sync_channel(1);
        let kept = membership.clone();
        // Without a thread `take` says that nothing is kept.
        _ = thread::Builder::new()
            .name("roster".to_owned())
            .spawn(move || keep_all(&kept, &woken, failed));
        Self { membership, wake }
    }

    /// Takes a signed roster, as [`Membership::offer`], without waiting for the disk.
    ///
    /// # Errors
    /// [`RosterError`]; after [`RosterError::Keep`] it is in force.
    pub fn take(&self, signed: &[u8]) -> Result<Offered, RosterError> {
        let offered = self.membership.publish(signed)?;
        match self.wake.try_send(()) {
            Err(TrySendError::Disconnected(())) => {
                Err(self.membership.0.unkept()(io::Error::other("its thread does not run")))
            }
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
    /// Writes the newest roster to the file, unless that has it, or a newer one.
    fn keep(&self) -> Result<(), RosterError> {
        let _turn = self.0.turn()?;
        self.0.write(self.0.catch_up())
    }
}

impl Inner {
    /// Waits for the turn among all who write the file, of whatever process or thread.
    pub(super) fn turn(&self) -> Result<Option<File>, RosterError> {
        self.file.as_deref().map(durable::turn).transpose().map_err(self.unkept())
    }

    /// Takes what another process of this host has kept meanwhile, if it is newer; gives
    /// the version and the bytes that are in the file.
    pub(super) fn catch_up(&self) -> Option<(u64, Vec<u8>)> {
        // What cannot be read is about to be replaced.
        let (roster, signed) = read(&self.mesh, self.file.as_deref()?).ok()??;
        let (version, mut newest) = (roster.version, self.lock());
        if self.is_newer(version).is_ok() {
            self.put(&mut newest, roster, &signed, true);
        }
        Some((version, signed))
    }

    /// Puts the newest roster in place of what was `found`; in one's turn.
    pub(super) fn write(&self, found: Option<(u64, Vec<u8>)>) -> Result<(), RosterError> {
        let Some(file) = self.file.as_deref() else { return Ok(()) };
        let Newest { signed: Some(signed), kept: false } = self.lock().clone() else {
            return Ok(());
        };
        match found {
            Some((_, kept)) if *kept == *signed => {}
            Some((version, _)) if matches!(self.is_newer(version), Err(RosterError::Forked(_))) => {
                return Err(RosterError::Forked(version));
            }
            _ => durable::replace(file, &signed).map_err(self.unkept())?,
        }
        let mut newest = self.lock();
        newest.kept |= newest.signed.as_deref() == Some(&*signed);
        Ok(())
    }

    fn unkept(&self) -> impl Fn(io::Error) -> RosterError + use<> {
        let file = self.file.clone().unwrap_or_default();
        move |source| RosterError::Keep { file: file.clone(), source }
    }
}

pub(super) fn verify(mesh: &NodeId, signed: &[u8]) -> Result<Roster, RosterError> {
    let signed = Signed::<Roster>::open(signed, &Ed25519)?;
    if signed.signer() != *mesh {
        return Err(RosterError::Signer { signer: signed.signer(), mesh: *mesh });
    }
    Ok(signed.into_value())
}

/// The kept roster and its signed bytes.
pub(super) fn read(mesh: &NodeId, file: &Path) -> Result<Option<(Roster, Vec<u8>)>, RosterError> {
    // The envelope adds a hundred bytes to the roster.
    let found = durable::read(file, Roster::MAX_BYTES + 128);
    let failed = |source| RosterError::Read { file: file.to_owned(), source };
    let Some(signed) = found.map_err(failed)? else { return Ok(None) };
    match verify(mesh, &signed) {
        Ok(roster) => Ok(Some((roster, signed))),
        Err(RosterError::Signer { signer, mesh }) => {
            Err(RosterError::Foreign { file: file.to_owned(), signer, mesh })
        }
        Err(error) => Err(error),
    }
}

pub(super) fn set_aside(
    file: &Path,
    why: &thalweg_wire::SignedError,
) -> Result<Damage, RosterError> {
    let failed = |source| RosterError::Read { file: file.to_owned(), source };
    let aside = durable::set_aside(file).map_err(failed)?;
    Ok(Damage { aside, why: why.to_string() })
}
