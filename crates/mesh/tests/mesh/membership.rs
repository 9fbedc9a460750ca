//! Which rosters are trusted, who must have signed them, and what survives a restart.

use crate::scene::{BEGIN, HOLDS, HandClock, at, id, key, mesh, roster, signed};
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    sync::{Arc, Barrier, mpsc},
    thread,
};
use tempfile::TempDir;
use thalweg_mesh::{Membership, OfferOutcome, RosterError, RosterFork, RosterWriter};
use thalweg_net::{
    PrivateKey,
    channel::{Admission as _, Protocol},
};
use thalweg_wire::{
    Signed, SignedError, Signer as _,
    mesh::{AuthorityError, Endorsement, Predecessor, Roster, SignedEndorsement},
};

fn file() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("roster");
    (dir, file)
}

fn load(file: &std::path::Path, clock: &HandClock) -> Membership {
    Membership::load_with_clock(mesh().id(), file.to_owned(), clock.clock()).unwrap()
}

fn version(membership: &Membership) -> Option<u64> {
    membership.current().map(|r| r.version)
}

#[test]
fn versions_only_grow_also_across_a_restart() {
    let (_dir, file) = file();
    let clock = HandClock::at(BEGIN);
    let membership = load(&file, &clock);
    assert_eq!(version(&membership), None);
    let third = signed(roster(3, &["a", "b"]));
    assert_eq!(membership.offer(&third).unwrap(), OfferOutcome::Accepted);
    assert_eq!(membership.offer(&third).unwrap(), OfferOutcome::Same);
    let again = load(&file, &clock);
    for membership in [membership, again] {
        let older = membership.offer(&signed(roster(2, &["a", "b", "c"])));
        assert!(matches!(older, Err(RosterError::Rollback { offered: 2, have: 3 })), "{older:?}");
        let other = membership.offer(&signed(roster(3, &["a"])));
        assert!(matches!(other, Err(RosterError::Forked(3))), "{other:?}");
        assert_eq!(version(&membership), Some(3));
        assert_eq!(membership.signed().as_deref(), Some(&third[..]));
    }
    assert_eq!(fs::read(&file).unwrap(), third);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

/// A roster that a signing key with this number signs, endorsed by the mesh's root key.
fn endorsed(roster: Roster, number: u64, by: &PrivateKey) -> Vec<u8> {
    let endorsement = Endorsement { key: by.id(), number, time: at(BEGIN) };
    let endorsement = Some(SignedEndorsement::sign(endorsement, &mesh()));
    Signed::sign(Roster { endorsement, ..roster }, by).encode()
}

#[test]
fn a_new_signing_key_outranks_rosters_of_the_old_one() {
    let (_dir, file) = file();
    let membership = load(&file, &HandClock::at(BEGIN));
    membership.offer(&signed(roster(5, &["a"]))).unwrap();
    let first = endorsed(roster(6, &["a", "b"]), 1, &key(201));
    assert_eq!(membership.offer(&first).unwrap(), OfferOutcome::Accepted);
    // The thief of the first signing key takes the highest version.
    let stolen = endorsed(roster(u64::MAX, &["z"]), 1, &key(201));
    assert_eq!(membership.offer(&stolen).unwrap(), OfferOutcome::Accepted);
    let second = endorsed(roster(7, &["a", "b"]), 2, &key(202));
    assert_eq!(membership.offer(&second).unwrap(), OfferOutcome::Accepted);
    for old in [&stolen, &first, &signed(roster(9, &["a"]))] {
        let refused = membership.offer(old);
        assert!(matches!(refused, Err(RosterError::ReplacedKey { have: 2, .. })), "{refused:?}");
    }
    assert_eq!(membership.current().unwrap().version, 7);
    let again = load(&file, &HandClock::at(BEGIN));
    assert!(matches!(again.offer(&stolen), Err(RosterError::ReplacedKey { .. })), "also later");
}

#[test]
fn only_the_root_key_endorses_a_signing_key() {
    let (_dir, file) = file();
    let membership = load(&file, &HandClock::at(BEGIN));
    let (thief, root) = (key(251), mesh());
    let forged = Endorsement { key: thief.id(), number: 9, time: at(BEGIN) };
    let endorsement = Some(SignedEndorsement::sign(forged, &thief));
    let own = Signed::sign(Roster { endorsement, ..roster(9, &["z"]) }, &thief).encode();
    let refused = membership.offer(&own);
    let is_expected = |why: &_| matches!(why, AuthorityError::OtherMesh { .. });
    assert!(
        matches!(&refused, Err(RosterError::Authority(why)) if is_expected(why)),
        "{refused:?}"
    );
    // The endorsement of another key.
    let other = Endorsement { key: key(201).id(), number: 9, time: at(BEGIN) };
    let endorsement = Some(SignedEndorsement::sign(other, &root));
    let borrowed = Signed::sign(Roster { endorsement, ..roster(9, &["z"]) }, &thief).encode();
    let refused = membership.offer(&borrowed);
    let is_expected = |why: &_| matches!(why, AuthorityError::OtherKey { .. });
    assert!(
        matches!(&refused, Err(RosterError::Authority(why)) if is_expected(why)),
        "{refused:?}"
    );
    assert!(membership.current().is_none());
}

#[test]
fn a_roster_that_does_not_follow_from_the_one_before_shows_a_fork() {
    let (_dir, file) = file();
    let membership = load(&file, &HandClock::at(BEGIN));
    let after = |version, before: Option<(u64, &[u8])>| {
        let predecessor = before.map(|(version, signed)| Predecessor::new(version, signed));
        signed(Roster { predecessor, ..roster(version, &["a"]) })
    };
    let first = after(1, None);
    let second = after(2, Some((1, &first)));
    membership.offer(&first).unwrap();
    membership.offer(&second).unwrap();
    // Rosters between are unknown.
    let fifth = after(5, Some((4, b"fourth")));
    membership.offer(&fifth).unwrap();
    assert_eq!(membership.fork(), None);
    let other = after(6, Some((5, b"another fifth")));
    assert_eq!(membership.offer(&other).unwrap(), OfferOutcome::Accepted);
    assert_eq!(membership.fork(), Some(RosterFork { before: 5, after: 6 }));
    let from_older = after(8, Some((5, &fifth)));
    membership.offer(&from_older).unwrap();
    let fork = membership.fork().unwrap();
    assert_eq!(fork, RosterFork { before: 6, after: 8 });
    assert!(fork.to_string().contains("thalweg mesh rekey"), "{fork}");
}

#[test]
fn forged_rosters_and_those_of_other_meshes_change_nothing() {
    let (_dir, file) = file();
    let membership = load(&file, &HandClock::at(BEGIN));
    let good = signed(roster(1, &["a"]));
    membership.offer(&good).unwrap();
    let foreign = Signed::sign(roster(9, &["a", "z"]), &key(251)).encode();
    let refused = membership.offer(&foreign);
    assert!(
        matches!(refused, Err(RosterError::Authority(AuthorityError::OtherMesh { .. }))),
        "{refused:?}"
    );
    // The other mesh's roster, which claims to be signed by this mesh's key.
    let mut forged = foreign;
    forged[..32].copy_from_slice(mesh().id().as_bytes());
    let refused = membership.offer(&forged);
    let signature = |e| matches!(e, Err(RosterError::Signed(SignedError::Signature { .. })));
    assert!(signature(refused));
    // Every seventh byte, because each takes two checks of a signature.
    for at in (0..good.len()).step_by(7) {
        let mut altered = signed(roster(2, &["a"]));
        altered[at] ^= 1;
        assert!(membership.offer(&altered).is_err(), "byte {at}");
        assert!(membership.offer(&altered[..at]).is_err(), "cut at {at}");
    }
    assert_eq!(version(&membership), Some(1));
    assert_eq!(fs::read(&file).unwrap(), good);
}

#[test]
fn the_stored_roster_of_another_mesh_is_refused_and_left_alone() {
    let (_dir, file) = file();
    let foreign = Signed::sign(roster(9, &["a"]), &key(251)).encode();
    fs::write(&file, &foreign).unwrap();
    let loaded = Membership::load(mesh().id(), file.clone());
    assert!(matches!(loaded, Err(RosterError::Foreign { .. })), "{loaded:?}");
    assert_eq!(fs::read(&file).unwrap(), foreign);
}

#[test]
fn a_torn_or_altered_file_is_set_aside_and_fetched_anew() {
    let good = signed(roster(5, &["a", "b"]));
    let mut altered = good.clone();
    altered[150] ^= 0x80;
    let mut longer = good.clone();
    longer.push(0);
    for bad in [&b""[..], &good[..90], &good[..good.len() - 1], &altered, &longer] {
        let (dir, file) = file();
        fs::write(&file, bad).unwrap();
        let membership = load(&file, &HandClock::at(BEGIN));
        let damage = membership.damage().expect("damage is told").to_string();
        assert!(damage.contains("roster.damaged"), "{damage}");
        assert_eq!(fs::read(dir.path().join("roster.damaged")).unwrap(), bad);
        assert_eq!(version(&membership), None);
        assert_eq!(membership.offer(&good).unwrap(), OfferOutcome::Accepted);
        assert_eq!(fs::read(&file).unwrap(), good);
    }
}

#[test]
fn a_roster_admits_its_members_only_within_its_time() {
    let clock = HandClock::at(BEGIN);
    let membership = Membership::with_clock(mesh().id(), None, clock.clock());
    let admits = |seed| membership.admits(&id(seed), Protocol::Relay);
    assert!(!admits(1), "without a roster nobody is a member");
    assert!(membership.admits(&id(77), Protocol::Join));
    membership.offer(&signed(roster(1, &["a"]))).unwrap();
    for (second, holds) in [
        (BEGIN, true),
        (BEGIN + HOLDS - 1, true),
        (BEGIN + HOLDS, false),
        (BEGIN - 1, false),
        (BEGIN + 1, true),
    ] {
        clock.set(second);
        assert_eq!((admits(1), admits(101), admits(2)), (holds, holds, false), "at {second}");
        assert_eq!(membership.peer(&id(1), at(second)).is_some(), holds, "at {second}");
        assert_eq!(membership.fault().is_none(), holds, "at {second}");
        assert!(membership.admits(&id(77), Protocol::Join));
    }
    clock.set(BEGIN - 7200);
    let behind = membership.fault().unwrap().to_string();
    assert!(behind.contains("7200s") && behind.contains("behind"), "{behind}");
    clock.set(BEGIN + HOLDS + 90);
    let expired = membership.fault().unwrap().to_string();
    assert!(expired.contains("expired 90s ago"), "{expired}");
}

#[test]
fn of_many_concurrent_offers_the_highest_version_stays() {
    let (_dir, file) = file();
    let membership = load(&file, &HandClock::at(BEGIN));
    let start = Arc::new(Barrier::new(8));
    let offers = (0..8u64).map(|n| {
        let (membership, start) = (membership.clone(), Arc::clone(&start));
        thread::spawn(move || {
            let rosters: Vec<_> =
                (0..20).map(|i| signed(roster(1 + (i * 8 + n * 7) % 160, &["a"]))).collect();
            start.wait();
            rosters.iter().filter(|r| membership.offer(r).is_ok()).count()
        })
    });
    let offers: Vec<_> = offers.collect();
    let accepted: usize = offers.into_iter().map(|t| t.join().unwrap()).sum();
    assert!(accepted >= 1);
    assert_eq!(version(&membership), Some(160));
    assert_eq!(version(&load(&file, &HandClock::at(BEGIN))), Some(160));
}

#[test]
fn another_process_of_the_host_is_never_rolled_back() {
    let (_dir, file) = file();
    let clock = HandClock::at(BEGIN);
    let (daemon, command) = (load(&file, &clock), load(&file, &clock));
    daemon.offer(&signed(roster(7, &["a"]))).unwrap();
    let late = command.offer(&signed(roster(6, &["a", "b"])));
    assert!(matches!(late, Err(RosterError::Rollback { offered: 6, have: 7 })), "{late:?}");
    assert_eq!(version(&command), Some(7));
    assert_eq!(version(&load(&file, &clock)), Some(7));
}

#[test]
fn a_disk_that_fails_does_not_hold_up_a_revocation() {
    let (dir, file) = file();
    let membership = load(&file, &HandClock::at(BEGIN));
    membership.offer(&signed(roster(1, &["a", "b"]))).unwrap();
    // A directory blocks the path of the new file: not even root can replace it.
    let blocker = dir.path().join("roster.new");
    fs::create_dir(&blocker).unwrap();
    let second = signed(roster(2, &["a"]));
    let refused = membership.offer(&second);
    assert!(matches!(refused, Err(RosterError::Keep { .. })), "{refused:?}");
    assert!(!membership.admits(&id(2), Protocol::Relay), "b is revoked all the same");
    fs::remove_dir(&blocker).unwrap();
    assert_eq!(membership.offer(&second).unwrap(), OfferOutcome::Same);
    assert_eq!(fs::read(&file).unwrap(), second, "the next offer keeps it");
}

/// A keeper that reports its failures to the receiver.
fn keeper(membership: &Membership) -> (RosterWriter, mpsc::Receiver<String>) {
    let (failed, failures) = mpsc::sync_channel(8);
    let told = move |e: RosterError| failed.send(e.to_string()).unwrap();
    (RosterWriter::start(membership.clone(), told), failures)
}

fn until_stored(file: &std::path::Path, signed: &[u8]) {
    while fs::read(file).ok().as_deref() != Some(signed) {
        thread::yield_now();
    }
}

#[test]
fn a_disk_that_hangs_does_not_hold_up_a_revocation() {
    let (dir, file) = file();
    let membership = load(&file, &HandClock::at(BEGIN));
    let first = signed(roster(1, &["a", "b"]));
    membership.offer(&first).unwrap();
    // Only the holder of this lock may write: the keeper waits for it as for a disk.
    let turn = fs::File::open(dir.path()).unwrap();
    turn.lock().unwrap();
    let (keeper, _failures) = keeper(&membership);
    let third = signed(roster(3, &["a"]));
    assert_eq!(keeper.take(&signed(roster(2, &["a", "c"]))).unwrap(), OfferOutcome::Accepted);
    assert!(!membership.admits(&id(2), Protocol::Relay), "b is revoked");
    assert_eq!(keeper.take(&third).unwrap(), OfferOutcome::Accepted);
    assert!(!membership.admits(&id(3), Protocol::Relay), "c is revoked");
    assert_eq!(membership.signed().as_deref(), Some(&third[..]));
    assert_eq!(fs::read(&file).unwrap(), first);
    turn.unlock().unwrap();
    until_stored(&file, &third);
}

#[test]
fn a_keeper_reports_a_failed_write_and_stores_the_next_roster() {
    let (dir, file) = file();
    let membership = load(&file, &HandClock::at(BEGIN));
    let blocker = dir.path().join("roster.new");
    fs::create_dir(&blocker).unwrap();
    let (keeper, failures) = keeper(&membership);
    keeper.take(&signed(roster(1, &["a", "b"]))).unwrap();
    let told = failures.recv().unwrap();
    assert!(told.contains("cannot save the roster"), "{told}");
    fs::remove_dir(&blocker).unwrap();
    let second = signed(roster(2, &["a"]));
    keeper.take(&second).unwrap();
    until_stored(&file, &second);
}

#[test]
fn a_keeper_leaves_a_roster_that_another_process_stored_first() {
    let (_dir, file) = file();
    let clock = HandClock::at(BEGIN);
    let (daemon, command) = (load(&file, &clock), load(&file, &clock));
    let (keeper, failures) = keeper(&daemon);
    let fifth = signed(roster(5, &["a"]));
    command.offer(&fifth).unwrap();
    keeper.take(&signed(roster(5, &["a", "z"]))).unwrap();
    let told = failures.recv().unwrap();
    assert!(told.contains("two different rosters have version 5"), "{told}");
    assert_eq!(fs::read(&file).unwrap(), fifth);
    let ninth = signed(roster(9, &["a", "b"]));
    command.offer(&ninth).unwrap();
    keeper.take(&signed(roster(8, &["a"]))).unwrap();
    while version(&daemon) != Some(9) {
        thread::yield_now();
    }
    assert_eq!(fs::read(&file).unwrap(), ninth);
}

#[test]
fn the_leftover_of_an_interrupted_write_does_no_harm() {
    let (dir, file) = file();
    fs::write(dir.path().join("roster.new"), "half of a roster").unwrap();
    let membership = load(&file, &HandClock::at(BEGIN));
    assert_eq!(version(&membership), None);
    let first = signed(roster(1, &["a"]));
    membership.offer(&first).unwrap();
    assert_eq!(fs::read(&file).unwrap(), first);
    assert!(!dir.path().join("roster.new").exists());
}

proptest::proptest! {
    /// Any bytes are refused, in a file and when offered, without a panic.
    #[test]
    fn any_bytes_are_no_roster(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
        let (_dir, file) = file();
        fs::write(&file, &bytes).unwrap();
        let membership = load(&file, &HandClock::at(BEGIN));
        proptest::prop_assert!(membership.damage().is_some());
        proptest::prop_assert!(membership.offer(&bytes).is_err());
    }
}
