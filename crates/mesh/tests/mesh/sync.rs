//! The roster is kept current, through outages and attacks.

use crate::{
    oracle::{Fake, SEED},
    scene::{BEGIN, HOLDS, HandClock, id, key, member, mesh, roster, signed},
    state::fresh,
};
use std::sync::Arc;
use thalweg_mesh::{Membership, MeshFile, OracleClient, Reporter, RosterSync, State, SyncEvent};
use thalweg_wire::{
    Signed, Signer as _,
    mesh::{Member, Role},
};
use tokio::{sync::mpsc, task::JoinHandle};

/// A host `a` (seed 1) that keeps its roster current.
struct Host {
    membership: Membership,
    clock: HandClock,
    events: mpsc::Receiver<(&'static str, String)>,
    running: JoinHandle<()>,
}

impl Drop for Host {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl Host {
    fn start(oracles: Vec<thalweg_mesh::Oracle>, state: Option<State>) -> Self {
        let clock = HandClock::at(BEGIN);
        let membership = Membership::with_clock(mesh().id(), None, clock.clock());
        let client = OracleClient::new(&key(1), oracles.clone(), clock.clock()).unwrap();
        let (told, events) = mpsc::channel(256);
        let report: Reporter = Arc::new(move |event: &SyncEvent| {
            // The last events of a test have no reader.
            _ = told.try_send((event.name(), event.to_string()));
        });
        let mesh = MeshFile { mesh: mesh().id(), name: "a".parse().unwrap(), oracles };
        let sync = RosterSync::new(client, membership.clone(), (mesh, id(1)), state, report);
        Self { membership, clock, events, running: tokio::spawn(sync.run()) }
    }

    /// Waits for the event with this name, skips others, and returns its text.
    async fn event(&mut self, wanted: &str) -> String {
        loop {
            let (name, text) = self.events.recv().await.unwrap();
            if name == wanted {
                return text;
            }
        }
    }

    async fn version(&mut self, wanted: u64) {
        let mut rosters = self.membership.subscribe();
        let there = |r: &Option<Arc<thalweg_wire::mesh::Roster>>| {
            r.as_ref().is_some_and(|r| r.version == wanted)
        };
        rosters.wait_for(there).await.unwrap();
    }
}

#[tokio::test]
async fn each_new_roster_arrives() {
    let fake = Fake::start(&[id(1)], BEGIN).await;
    let mut host = Host::start(vec![fake.oracle()], None);
    for version in 1..=5 {
        fake.script.publish(roster(version, &["a", "b"]));
        host.version(version).await;
    }
    let told = host.event("roster_updated").await;
    assert!(told.contains("2 members"), "{told}");
}

#[tokio::test]
async fn a_revoked_member_is_cut_by_the_next_roster() {
    let fake = Fake::start(&[id(1)], BEGIN).await;
    let mut host = Host::start(vec![fake.oracle()], None);
    fake.script.publish(roster(1, &["a", "b"]));
    host.version(1).await;
    let peer = host.membership.peer(&id(2), host.membership.now()).unwrap();
    let cut = tokio::spawn(peer.revoked());
    fake.script.publish(roster(2, &["a"]));
    cut.await.unwrap();
}

#[test]
fn a_revocation_needs_no_blocking_thread() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let (free, freed) = std::sync::mpsc::sync_channel::<()>(1);
    // The only blocking thread waits, as for a name server that does not answer.
    runtime.spawn_blocking(move || freed.recv());
    runtime.block_on(async {
        let fake = Fake::start(&[id(1)], BEGIN).await;
        let mut host = Host::start(vec![fake.oracle()], None);
        fake.script.publish(roster(1, &["a", "b"]));
        host.version(1).await;
        let peer = host.membership.peer(&id(2), host.membership.now()).unwrap();
        let cut = tokio::spawn(peer.revoked());
        fake.script.publish(roster(2, &["a"]));
        cut.await.unwrap();
    });
    drop(free);
}

#[tokio::test]
async fn a_host_that_was_revoked_cuts_its_sessions() {
    let fake = Fake::start(&[id(1)], BEGIN).await;
    let mut host = Host::start(vec![fake.oracle()], None);
    fake.script.publish(roster(1, &["a", "b"]));
    host.version(1).await;
    let peer = host.membership.peer(&id(2), host.membership.now()).unwrap();
    let cut = tokio::spawn(peer.revoked());
    fake.script.publish(roster(2, &["b"]));
    cut.await.unwrap();
}

#[tokio::test]
async fn an_oracle_that_starts_late_is_found() {
    let fake = Fake::start(&[id(1)], BEGIN).await;
    let (address, oracle) = (fake.address, fake.oracle());
    fake.stop().await;
    let mut host = Host::start(vec![oracle], None);
    let told = host.event("oracle_unreached").await;
    assert!(told.contains(&address.to_string()) && told.contains("cached roster"), "{told}");
    let fake = Fake::start_at(address, &[id(1)], BEGIN).await;
    fake.script.publish(roster(1, &["a"]));
    host.event("oracle_reached").await;
    host.version(1).await;
}

#[tokio::test]
async fn rollbacks_and_forgeries_are_alerts_and_change_nothing() {
    let fake = Fake::start(&[id(1)], BEGIN).await;
    let mut host = Host::start(vec![fake.oracle()], None);
    fake.script.publish(roster(9, &["a", "b"]));
    host.version(9).await;
    fake.script.publish(roster(8, &["a", "b", "c"]));
    let told = host.event("roster_rejected").await;
    assert!(told.contains("version 8 is older than version 9"), "{told}");
    fake.script.publish(roster(10, &["a", "b"]));
    host.version(10).await;
    let foreign = Signed::sign(roster(11, &["a", "z"]), &key(251)).encode();
    fake.script.publish_bytes(11, foreign);
    let told = host.event("roster_rejected").await;
    assert!(told.contains("not for this mesh"), "{told}");
    assert_eq!(host.membership.current().unwrap().version, 10);
}

#[tokio::test]
async fn expiry_is_reported_before_and_after_and_ends_with_the_next_roster() {
    let fake = Fake::start(&[id(1)], BEGIN).await;
    let mut host = Host::start(vec![fake.oracle()], None);
    host.clock.set(BEGIN + HOLDS - 60);
    fake.script.publish(roster(1, &["a"]));
    let told = host.event("roster_near_expiry").await;
    assert!(told.contains("expires in 60 s"), "{told}");
    host.clock.set(BEGIN + HOLDS + 30);
    fake.script.publish(roster(2, &["a"]));
    let told = host.event("roster_not_valid").await;
    assert!(told.contains("expired 30s ago"), "{told}");
    host.clock.set(BEGIN - 300);
    fake.script.publish(roster(3, &["a"]));
    host.version(3).await;
    assert!(host.membership.fault().unwrap().to_string().contains("300s"));
    host.clock.set(BEGIN);
    assert!(host.membership.fault().is_none());
}

#[tokio::test]
async fn oracles_that_move_are_followed_and_stored() {
    let (first, second) = (Fake::start(&[id(1)], BEGIN).await, Fake::start(&[id(1)], BEGIN).await);
    let (_dir, state) = fresh();
    let mut host = Host::start(vec![first.oracle()], Some(state.clone()));
    let mut moved = roster(1, &["a"]);
    let roles = [Role::Client, Role::Oracle].into();
    moved.members.push(Member {
        roles,
        client: id(99),
        addresses: vec![second.address.into()],
        ..member("o", SEED)
    });
    first.script.publish(moved.clone());
    host.version(1).await;
    // The long poll at the first oracle ends with it.
    first.stop().await;
    second.script.publish(thalweg_wire::mesh::Roster { version: 2, ..moved });
    host.version(2).await;
    assert_eq!(state.mesh().unwrap().oracles, [second.oracle()]);
}

#[tokio::test]
async fn a_host_that_was_revoked_reports_that() {
    let fake = Fake::start(&[id(1)], BEGIN).await;
    let mut host = Host::start(vec![fake.oracle()], None);
    fake.script.publish(roster(1, &["a", "b"]));
    host.version(1).await;
    fake.script.publish_bytes(2, signed(roster(2, &["b"])));
    let told = host.event("not_listed").await;
    assert!(told.contains("revoked") && told.contains("thalweg mesh join"), "{told}");
}

#[tokio::test]
async fn a_host_without_another_oracle_waits_for_rosters_offered_to_itself() {
    let mut host = Host::start(Vec::new(), None);
    host.membership.offer(&signed(roster(1, &["b"]))).unwrap();
    host.event("not_listed").await;
}
