//! Decides which casts this node accepts or relays, and which members may fetch them.

use super::{Entry, MAX_LIFETIME, ServiceState, clear::is_gone};
use crate::{
    disk::{InboxPolicy, is_as_made},
    receive::{
        cast_directory::{CastDirectory, StoredCast},
        finish,
        reception::{Reception, State, geometry},
        relay::RelaySlot,
        run,
    },
};
use rustix::fs::OFlags;
use std::{
    ffi::OsStr,
    fs::OpenOptions,
    io::{self, Read as _},
    os::unix::{ffi::OsStrExt as _, fs::OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};
use thalweg_base::log::Event;
use thalweg_mesh::MeshPeer;
use thalweg_net::Ed25519;
use thalweg_wire::{
    ObjectId, Signed,
    cast::{CastId, Offer, Pass, Refusal},
    mesh::{Member, Name},
};
use tokio::{
    sync::{AcquireError, Semaphore},
    task::spawn_blocking,
};

impl ServiceState {
    /// Admits a cast that this node only relays.
    pub(super) fn admit_relay(
        &self,
        offer: Vec<u8>,
        pass: Vec<u8>,
        peer: &MeshPeer,
    ) -> Result<RelaySlot, Refusal> {
        let offer = self.check_offer(&offer, &pass, peer)?;
        self.relays.admit(offer, pass)
    }

    /// Checks that an offer is valid, comes from its signer, and has a pass for this node.
    fn check_offer(
        &self,
        offer: &[u8],
        pass: &[u8],
        peer: &MeshPeer,
    ) -> Result<Signed<Offer>, Refusal> {
        let invalid = |why: String| Refusal::Invalid(why);
        let offer = Signed::<Offer>::open(offer, &Ed25519).map_err(|e| invalid(e.to_string()))?;
        let id = offer.value().id(&offer.signer());
        if offer.signer() != peer.key() {
            return Err(invalid("the offer is not signed by its sender".to_owned()));
        }
        self.check_pass(pass, id, &offer, &self.me)?;
        geometry(offer.value())?;
        let now = self.membership.now().as_unix_nanos();
        if offer.value().expiry.as_unix_nanos() > now.saturating_add(MAX_LIFETIME.as_nanos() as u64)
        {
            return Err(invalid(format!("the offer is valid for more than {MAX_LIFETIME:?}")));
        }
        Ok(offer)
    }

    /// Checks whether a cast would be accepted, or relayed, now. Nothing is created or stored.
    pub(super) async fn would_take(
        self: &Arc<Self>,
        offer: Vec<u8>,
        pass: Vec<u8>,
        relays: bool,
        peer: &MeshPeer,
    ) -> Result<Admission, Refusal> {
        let offer = self.check_offer(&offer, &pass, peer)?;
        if relays {
            let admission = Admission { copy: CopyCheck::Done, policy: None };
            return self.relays.would_admit(&offer).map(|()| admission);
        }
        let (shared, member) = (Arc::clone(self), peer.member().clone());
        let (name, object, length) = {
            let offer = offer.value();
            (offer.name.to_string(), offer.object, offer.length)
        };
        let failed = |e: tokio::task::JoinError| Refusal::System(e.to_string());
        let look = move || shared.look_at(&offer, &member);
        let (copy, policy) = spawn_blocking(look).await.map_err(failed)??;
        let admission = |copy| Admission { copy, policy: Some(policy) };
        let copy = match copy {
            ExistingCopy::Settled(check) => return Ok(admission(check)),
            ExistingCopy::File(path) => path,
        };
        let closed = |e: AcquireError| Refusal::System(e.to_string());
        let turn = COMPARING.acquire().await.map_err(closed)?;
        let compare = move || {
            // Held until the file is read, even if the caller has stopped waiting.
            let _turn = turn;
            is_object(&copy, object, length)
        };
        match spawn_blocking(compare).await.map_err(failed)?? {
            true => Ok(admission(CopyCheck::Done)),
            false => Err(Refusal::Exists(name)),
        }
    }

    fn look_at(
        &self,
        offer: &Signed<Offer>,
        from: &Member,
    ) -> Result<(ExistingCopy, InboxPolicy), Refusal> {
        let id = offer.value().id(&offer.signer());
        if self.lock().get(&id).is_some_and(|entry| entry.is_leaving) {
            return Err(Refusal::Busy);
        }
        let known = self.get(id).filter(|reception| still_holds(reception));
        if let Some(reception) = known.filter(|reception| !is_gone(reception)) {
            let settled = (ExistingCopy::Settled(CopyCheck::Done), reception.home.policy.clone());
            if matches!(reception.state(), State::Complete(..)) {
                return Ok(settled);
            }
            self.inboxes.get().takes(&reception.home.inbox, from, reception.bytes())?;
            return if reception.is_conducted() { Err(Refusal::Conducted) } else { Ok(settled) };
        }
        self.has_place(from)?;
        let others = |inbox: &Path| self.lacked_beside(id, inbox);
        let home = self.inboxes.get().admit(from, id, offer.value(), others)?;
        Ok((find_copy(&home, offer.value()), home.policy))
    }

    /// Accepts or refuses an offered cast. Returns its reception.
    pub(super) async fn accept_offer(
        self: &Arc<Self>,
        offer: Vec<u8>,
        pass: Vec<u8>,
        peer: &MeshPeer,
    ) -> Result<Arc<Reception>, Refusal> {
        let offer = self.check_offer(&offer, &pass, peer)?;
        let id = offer.value().id(&offer.signer());
        let shared = Arc::clone(self);
        let member = peer.member().clone();
        let name = offer.value().name.clone();
        let admit = move || shared.admit(id, offer, pass, &member);
        let admitted = spawn_blocking(admit).await.map_err(|e| Refusal::System(e.to_string()))?;
        let reception = admitted.inspect_err(|why| {
            let event = Event::new("cast_refused").with("from", &peer.member().name);
            self.log.put(event.with("name", &name).with("why", why));
        })?;
        self.work(id);
        Ok(reception)
    }

    fn admit(
        &self,
        id: CastId,
        offer: Signed<Offer>,
        pass: Vec<u8>,
        from: &Member,
    ) -> Result<Arc<Reception>, Refusal> {
        // One admission at a time: free space is checked and then reserved.
        let _alone = self.admission.lock();
        self.drop_removed();
        let known = self.get(id);
        if self.lock().get(&id).is_some_and(|entry| entry.is_leaving) {
            return Err(Refusal::Busy);
        }
        if let Some(reception) = known.filter(|r| still_holds(r)) {
            let is_complete = matches!(reception.state(), State::Complete(..));
            if !is_complete {
                let takes =
                    self.inboxes.get().takes(&reception.home.inbox, from, reception.bytes());
                takes.inspect_err(|_| self.expel(&reception))?;
            }
            if reception.is_conducted() && !is_complete {
                return Err(Refusal::Conducted);
            }
            match reception.home.begin(&offer, &pass) {
                // A known cast can continue, or be abandoned, without them.
                Err(why) if is_full(&why) => {}
                begun => begun.map_err(|why| unwritten(&why))?,
            }
            reception.renew(offer, pass);
            self.clear_failure(id, &reception);
            return Ok(reception);
        }
        self.has_place(from)?;
        let others = |inbox: &Path| self.lacked_beside(id, inbox);
        let home: CastDirectory = self.inboxes.get().admit(from, id, offer.value(), others)?;
        home.remove().and_then(|()| home.begin(&offer, &pass)).map_err(|why| unwritten(&why))?;
        let kept = StoredCast {
            offer,
            pass,
            parents: None,
            described: None,
            is_done: false,
            record: None,
        };
        let reception = Reception::new(home, from.name.clone(), kept);
        reception.home.keep_record(&reception.record()).map_err(run::refusal)?;
        self.lock().insert(id, Entry::new(Arc::clone(&reception)));
        Ok(reception)
    }

    /// Bytes that other casts in an inbox still lack.
    fn lacked_beside(&self, id: CastId, inbox: &Path) -> u64 {
        let receptions = self.lock();
        let others = receptions.iter().filter(|(other, _)| **other != id);
        let here = others.filter(|(_, entry)| entry.reception.home.inbox == inbox);
        here.map(|(_, entry)| entry.reception.lacks()).fold(0, u64::saturating_add)
    }

    /// Whether there is room for the object with all its entries. Checked once they are known, before any is created.
    ///
    /// # Errors
    /// The reason for a refusal.
    pub(super) fn has_room(&self, reception: &Reception) -> Result<(), Refusal> {
        if reception.home.is_begun(reception.offer().value().name.as_bytes()) {
            return Ok(());
        }
        let CastDirectory { inbox, id, .. } = &reception.home;
        self.inboxes.get().has_room(inbox, reception.takes(), self.lacked_beside(*id, inbox))
    }

    /// Whether one more cast may be accepted. One member may use at most three quarters of the places.
    fn has_place(&self, from: &Member) -> Result<(), Refusal> {
        let receptions = self.lock();
        let is_unfinished = |e: &&Entry| !matches!(e.reception.state(), State::Complete(..));
        let unfinished = || receptions.values().filter(is_unfinished);
        let own = unfinished().filter(|entry| entry.reception.source == from.name).count();
        let is_full =
            unfinished().count() >= self.max_casts || own >= self.max_casts - self.max_casts / 4;
        if is_full { Err(Refusal::Busy) } else { Ok(()) }
    }

    /// Checks whether another receiver may fetch the cast from here. Returns whether legs may be open.
    pub(super) fn admit_child(
        &self,
        id: CastId,
        pass: &[u8],
        member: &Member,
    ) -> Result<(Arc<Reception>, bool), Refusal> {
        let reception = self.get(id).ok_or(Refusal::Unknown)?;
        let offer = reception.offer();
        self.check_pass(pass, id, &offer, &member.name)?;
        Ok((reception, offer.value().open))
    }

    pub(super) fn check_pass(
        &self,
        pass: &[u8],
        id: CastId,
        offer: &Signed<Offer>,
        to: &Name,
    ) -> Result<(), Refusal> {
        let pass = Signed::<Pass>::open(pass, &Ed25519).map_err(|_| Refusal::Pass)?;
        let now = self.membership.now();
        let value = pass.value();
        let is_right = pass.signer() == offer.signer()
            && value.cast == id
            && value.to == *to
            && value.expiry > now
            && offer.value().expiry > now;
        if is_right { Ok(()) } else { Err(Refusal::Pass) }
    }
}

/// How a cast would be accepted.
pub(super) struct Admission {
    pub(super) copy: CopyCheck,
    /// What its source may set in the inbox; `None` if this node only relays it.
    pub(super) policy: Option<InboxPolicy>,
}

/// Whether a dry run compared an existing copy with the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyCheck {
    /// The copy is the object, or there is no copy.
    Done,
    /// The copy is a directory or a long file, and its content was not read.
    Skipped,
}

/// The longest copy that a dry run reads, in bytes: a second of a slow disk.
const MAX_COMPARED: u64 = 64 << 20;

/// Copies are compared one at a time, which bounds the load that dry runs put on the disks.
static COMPARING: Semaphore = Semaphore::const_new(1);

/// What is known of an existing copy without reading it.
enum ExistingCopy {
    /// The content need not be read.
    Settled(CopyCheck),
    /// A file whose content must be compared.
    File(PathBuf),
}

fn find_copy(home: &CastDirectory, offer: &Offer) -> ExistingCopy {
    let path = home.inbox.join(OsStr::from_bytes(offer.name.as_bytes()));
    match path.symlink_metadata() {
        Err(_) => ExistingCopy::Settled(CopyCheck::Done),
        Ok(found) if found.is_file() && offer.length <= MAX_COMPARED => ExistingCopy::File(path),
        Ok(_) => ExistingCopy::Settled(CopyCheck::Skipped),
    }
}

/// Whether a file is the object of this length. Blocks.
fn is_object(path: &Path, object: ObjectId, length: u64) -> Result<bool, Refusal> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32);
    let opened = options.open(path).map_err(|e| Refusal::System(e.to_string()))?;
    // Reads one byte more, so that a file that grew meanwhile differs.
    let mut hasher = blake3::Hasher::new();
    let read = hasher.update_reader(opened.take(length + 1)).map(drop);
    read.map_err(|e| Refusal::System(e.to_string()))?;
    Ok(ObjectId::from_bytes(hasher.finalize().into()) == object)
}

fn is_full(why: &io::Error) -> bool {
    matches!(why.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// An error of the inbox as a refusal, without paths of this host, which sources should not learn.
fn unwritten(why: &io::Error) -> Refusal {
    match is_full(why) {
        true => Refusal::System("its inbox's disk is full".to_owned()),
        false => Refusal::System(format!("its inbox cannot be written: {why}")),
    }
}

/// Whether a complete cast is still unchanged in its inbox. If not, it may be cast again, and what is there is read.
fn still_holds(reception: &Reception) -> bool {
    let State::Complete(..) = reception.state() else { return true };
    let name = reception.offer().into_value().name;
    let described = reception.described().clone();
    let landed = reception.home.final_location(name.as_bytes()).ok();
    landed.zip(described).is_some_and(|(place, (_, layout))| {
        is_as_made(&place, &layout, &reception.home.policy)
            && finish::is_proven(reception, &place, &layout)
    })
}
