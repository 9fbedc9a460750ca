//! When a member's sessions are cut. The tests control both the timers' clock and the date.

use crate::scene::{BEGIN, HOLDS, HandClock, at, id, mesh, roster, signed};
use std::{pin::pin, time::Duration};
use thalweg_mesh::{Membership, MeshPeer};
use thalweg_wire::Signer as _;
use tokio::time::{Instant, advance, timeout};

/// A membership of `a` and `b`, and the peer `b`.
fn admitted(clock: &HandClock) -> (Membership, MeshPeer) {
    let membership = Membership::with_clock(mesh().id(), None, clock.clock());
    membership.offer(&signed(roster(1, &["a", "b"]))).unwrap();
    let peer = membership.peer(&id(2), at(BEGIN)).unwrap();
    (membership, peer)
}

/// Whether the future still waits after several checks of the clock.
async fn lasts(revoked: &mut (impl Future<Output = ()> + Unpin)) -> bool {
    timeout(Duration::from_secs(5), revoked).await.is_err()
}

#[tokio::test(start_paused = true)]
async fn a_newer_roster_without_the_key_cuts_at_once() {
    let (membership, peer) = admitted(&HandClock::at(BEGIN));
    let mut revoked = pin!(peer.revoked());
    assert!(lasts(&mut revoked).await);
    membership.offer(&signed(roster(2, &["a", "b", "c"]))).unwrap();
    assert!(lasts(&mut revoked).await, "a roster that still has the key");
    membership.offer(&signed(roster(3, &["a", "c"]))).unwrap();
    let before = Instant::now();
    revoked.await;
    assert_eq!(before.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_key_revoked_before_anybody_waits_is_cut_too() {
    let (membership, peer) = admitted(&HandClock::at(BEGIN));
    let revoked = peer.revoked();
    membership.offer(&signed(roster(2, &["a"]))).unwrap();
    revoked.await;
    peer.revoked().await;
}

#[tokio::test(start_paused = true)]
async fn an_expired_roster_cuts_within_a_second_of_the_date() {
    let clock = HandClock::at(BEGIN);
    let (_membership, peer) = admitted(&clock);
    let mut revoked = pin!(peer.revoked());
    assert!(lasts(&mut revoked).await);
    // The date jumps; the monotonic clock does not.
    clock.set(BEGIN + HOLDS);
    let before = Instant::now();
    revoked.await;
    assert!(before.elapsed() <= Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_renewed_roster_postpones_the_end() {
    let clock = HandClock::at(BEGIN);
    let (membership, peer) = admitted(&clock);
    let mut revoked = pin!(peer.revoked());
    assert!(lasts(&mut revoked).await);
    let mut longer = roster(2, &["a", "b"]);
    longer.expiry = at(BEGIN + 2 * HOLDS);
    membership.offer(&signed(longer)).unwrap();
    clock.set(BEGIN + HOLDS + 1);
    assert!(lasts(&mut revoked).await);
    clock.set(BEGIN + 2 * HOLDS);
    advance(Duration::from_secs(1)).await;
    revoked.await;
}

#[tokio::test(start_paused = true)]
async fn a_revocation_counts_even_in_an_expired_roster() {
    let (membership, peer) = admitted(&HandClock::at(BEGIN));
    let mut revoked = pin!(peer.revoked());
    assert!(lasts(&mut revoked).await);
    let mut old = roster(2, &["a"]);
    (old.not_before, old.expiry) = (at(BEGIN - 10), at(BEGIN - 5));
    membership.offer(&signed(old)).unwrap();
    revoked.await;
    assert!(membership.peer(&id(1), at(BEGIN)).is_none(), "nor does it admit those it lists");
}

#[tokio::test(start_paused = true)]
async fn a_client_key_of_a_member_is_cut_like_the_daemons() {
    let (membership, _) = admitted(&HandClock::at(BEGIN));
    let client = membership.peer(&id(102), at(BEGIN)).unwrap();
    assert_eq!(client.member().name.as_str(), "b");
    membership.offer(&signed(roster(2, &["a"]))).unwrap();
    client.revoked().await;
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_cuts_waiting_sessions_and_admits_again_once_it_is_back() {
    let clock = HandClock::at(BEGIN);
    let (membership, peer) = admitted(&clock);
    let mut first = pin!(peer.revoked());
    assert!(lasts(&mut first).await);
    clock.set(BEGIN + HOLDS);
    first.await;
    clock.set(BEGIN + 1);
    let again = membership.peer(&id(2), membership.now()).unwrap();
    let mut second = pin!(again.revoked());
    assert!(lasts(&mut second).await);
    clock.set(BEGIN - 1);
    second.await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_no_longer_listed_ends_all_its_sessions() {
    let (membership, peer) = admitted(&HandClock::at(BEGIN));
    let mut revoked = pin!(peer.revoked());
    membership.set_own(id(1));
    assert!(lasts(&mut revoked).await, "it is listed");
    membership.offer(&signed(roster(2, &["b"]))).unwrap();
    let before = Instant::now();
    revoked.await;
    peer.revoked().await;
    assert_eq!(Instant::now(), before, "b is listed, and a is not: no timer is waited for");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_sets_an_unlisted_key_ends_its_sessions() {
    let (membership, peer) = admitted(&HandClock::at(BEGIN));
    let mut revoked = pin!(peer.revoked());
    assert!(lasts(&mut revoked).await);
    membership.set_own(id(9));
    revoked.await;
}

#[tokio::test(start_paused = true)]
async fn sessions_through_a_relay_end_when_it_is_no_longer_listed() {
    let clock = HandClock::at(BEGIN);
    let (membership, _) = admitted(&clock);
    let (mut a, mut b) =
        (pin!(membership.wait_for_removal(id(1))), pin!(membership.wait_for_removal(id(2))));
    assert!(lasts(&mut a).await && lasts(&mut b).await);
    membership.offer(&signed(roster(2, &["a", "c"]))).unwrap();
    b.await;
    membership.wait_for_removal(id(2)).await;
    assert!(lasts(&mut a).await, "a stays");
    clock.set(BEGIN + HOLDS);
    a.await;
}
