//! The election lease, on both databases.

use super::{Home, on_both};
use crate::store::lease::Ballot;
use std::time::Duration;
use thalweg_units::NodeId;

const LONG: Duration = Duration::from_secs(600);

fn oracle(n: u8) -> NodeId {
    NodeId::from_bytes([n; 32])
}

on_both!(
    one_oracle_holds_and_renews_the_lease,
    a_lease_expires_by_the_clock_of_the_database,
    one_of_many_simultaneous_candidates_wins,
    a_newer_term_fences_the_older,
    terms_do_not_go_back_with_a_backup,
    a_clock_that_was_set_back_does_not_make_a_lease_eternal,
);

async fn won(home: &crate::store::Store, who: u8, valid: Duration) -> u64 {
    match home.lease(&oracle(who), valid).await.unwrap() {
        Ballot::Won(term) => term,
        Ballot::Held(lease) => panic!("{lease:?}"),
    }
}

async fn one_oracle_holds_and_renews_the_lease(home: Home) {
    let (a, b) = (home.open().await, home.open().await);
    let term = won(&a, 1, LONG).await;
    let Ballot::Held(lease) = b.lease(&oracle(2), LONG).await.unwrap() else { panic!("two") };
    assert_eq!((lease.holder, lease.term), (oracle(1), term));
    assert!(lease.left <= LONG && lease.left > LONG / 2, "{lease:?}");
    assert!(a.renew_lease(&oracle(1), term, LONG).await.unwrap());
    a.release_lease(&oracle(1), term).await.unwrap();
    assert!(won(&b, 2, LONG).await > term);
}

async fn a_lease_expires_by_the_clock_of_the_database(home: Home) {
    let (a, b) = (home.open().await, home.open().await);
    let short = Duration::from_millis(150);
    let term = won(&a, 1, short).await;
    // Nobody renews, so the other oracle gets it at some point.
    let next = loop {
        match b.lease(&oracle(2), LONG).await.unwrap() {
            Ballot::Won(next) => break next,
            Ballot::Held(lease) => assert!(lease.left <= short, "{lease:?}"),
        }
    };
    assert!(next > term);
    assert!(!a.renew_lease(&oracle(1), term, LONG).await.unwrap());
}

async fn one_of_many_simultaneous_candidates_wins(home: Home) {
    let mut all = Vec::new();
    for n in 1..=8 {
        let store = home.open().await;
        all.push(tokio::spawn(async move { store.lease(&oracle(n), LONG).await.unwrap() }));
    }
    let mut winners = 0;
    for one in all {
        winners += u32::from(matches!(one.await.unwrap(), Ballot::Won(_)));
    }
    assert_eq!(winners, 1);
}

async fn a_newer_term_fences_the_older(home: Home) {
    let (a, b) = (home.open().await, home.open().await);
    let first = won(&a, 1, LONG).await;
    // A restarted oracle: its own lease does not block it, and the old term is over.
    let second = won(&b, 1, LONG).await;
    assert!(second > first);
    assert!(!a.renew_lease(&oracle(1), first, LONG).await.unwrap());
    // An old term cannot release the lease either.
    a.release_lease(&oracle(1), first).await.unwrap();
    assert!(b.renew_lease(&oracle(1), second, LONG).await.unwrap());
    assert!(matches!(a.lease(&oracle(2), LONG).await.unwrap(), Ballot::Held(_)));
}

async fn terms_do_not_go_back_with_a_backup(home: Home) {
    let store = home.open().await;
    let before = won(&store, 1, LONG).await;
    let since_1970 = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    assert!(before.abs_diff(since_1970.as_secs()) < 3600, "{before}");
    let mut session = store.session().await.unwrap();
    let older = "UPDATE lease SET holder = '', term = 1, expires = 0";
    session.run(sqlx::query(older)).await.unwrap();
    drop(session);
    assert!(won(&store, 1, LONG).await >= before);
}

async fn a_clock_that_was_set_back_does_not_make_a_lease_eternal(home: Home) {
    let store = home.open().await;
    let term = won(&store, 1, Duration::from_secs(6)).await;
    let mut session = store.session().await.unwrap();
    let hour = "UPDATE lease SET expires = expires + 3600000";
    session.run(sqlx::query(hour)).await.unwrap();
    drop(session);
    assert!(won(&store, 2, Duration::from_secs(6)).await > term);
}
