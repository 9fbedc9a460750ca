//! Versions, renewal, rules, revocation, and long polls.

use crate::harness::{Host, Mesh, get, newest, peer, post, token_request, verified};
use std::time::Duration;
use thalweg_oracle::{Caller, Event};
use thalweg_wire::{
    Signer as _,
    mesh::{
        AddressesReply, AddressesRequest, RevokeReply, RevokeRequest, Role, Rule, TokenRequest,
    },
};

const DAY: Duration = Duration::from_secs(24 * 3600);

#[tokio::test]
async fn the_roster_is_sorted_and_valid_for_a_week_and_a_little_before() {
    let mesh = Mesh::found().await;
    for name in ["zrh", "ams", "9x", "a=b", "mun"] {
        mesh.joined(name).await;
    }
    let roster = mesh.newest();
    let names: Vec<_> = roster.members.iter().map(|m| m.name.to_string()).collect();
    assert_eq!(names, ["9x", "a=b", "ams", "fra", "mun", "zrh"]);
    let now = mesh.hand.now().as_unix_nanos();
    assert_eq!(now - roster.not_before.as_unix_nanos(), 120_000_000_000);
    assert_eq!(roster.expiry.as_unix_nanos() - now, 7 * DAY.as_nanos() as u64);
    assert!(roster.version >= now / 1_000_000_000);
}

#[tokio::test]
async fn the_roster_is_renewed_after_a_third_of_its_validity() {
    let mesh = Mesh::found().await;
    let first = mesh.newest();
    mesh.hand.forward(2 * DAY);
    mesh.oracle.tick().await.unwrap();
    assert_eq!(mesh.newest(), first);
    mesh.hand.forward(DAY);
    mesh.oracle.tick().await.unwrap();
    let second = mesh.newest();
    assert!(second.version > first.version && second.check(mesh.hand.now()).is_ok());
    assert_eq!(second.members, first.members);
    mesh.oracle.tick().await.unwrap();
    assert_eq!(mesh.newest(), second);
}

#[tokio::test]
async fn a_clock_that_is_set_back_causes_a_new_roster() {
    let mut mesh = Mesh::found().await;
    mesh.hand.forward(100 * DAY);
    mesh.reopen().await;
    let ahead = mesh.newest();
    mesh.hand.back(100 * DAY);
    mesh.oracle.tick().await.unwrap();
    let roster = mesh.newest();
    assert_eq!(roster.version, ahead.version + 1);
    assert!(roster.check(mesh.hand.now()).is_ok());
}

#[tokio::test]
async fn rules_are_published_when_they_change() {
    let mut mesh = Mesh::found().await;
    let before = mesh.newest().version;
    let rule = Rule { deny_to: vec!["10.0.0.0/8".parse().unwrap()], ..Rule::default() };
    mesh.oracle.set_rules(vec![rule.clone()]).await.unwrap();
    let published = mesh.newest();
    assert!(published.version > before);
    assert_eq!(published.rules, std::slice::from_ref(&rule));
    mesh.oracle.set_rules(vec![rule.clone()]).await.unwrap();
    assert_eq!(mesh.newest(), published);
    mesh.reopen().await;
    assert_eq!(mesh.newest().rules, [rule]);
    let error = mesh.oracle.set_rules(vec![Rule::default(); 257]).await.unwrap_err();
    assert_eq!(error.code(), "full");
}

#[tokio::test]
async fn the_oracles_own_addresses_are_published_when_they_change() {
    let mesh = Mesh::found().await;
    let new = vec!["oracle.example:7373".parse().unwrap()];
    let before = mesh.newest().version;
    mesh.oracle.set_addresses(&Caller::Local, new.clone()).await.unwrap();
    let published = mesh.newest();
    assert!(published.version > before);
    assert_eq!(published.by_key(&mesh.founder.node.id()).unwrap().addresses, new);
    assert_eq!(mesh.token().await.addresses, new);
    mesh.oracle.set_addresses(&Caller::Local, new).await.unwrap();
    assert_eq!(mesh.newest(), published);
    let none = mesh.oracle.set_addresses(&Caller::Local, Vec::new()).await;
    assert_eq!(none.unwrap_err().code(), "role");
}

#[tokio::test]
async fn a_member_without_the_role_relay_has_no_addresses() {
    let mesh = Mesh::found().await;
    let host = Host::new("ber");
    let token = mesh.token_with(TokenRequest { roles: [].into(), ..token_request() }).await;
    mesh.join(&host, &token).await.unwrap();
    let request = AddressesRequest { addresses: vec!["ber.example:7373".parse().unwrap()] };
    let before = mesh.newest();
    let answer = post(&mesh.oracle, host.caller(), "/v1/addresses", &request).await;
    let refused = answer.result::<AddressesReply>().unwrap_err();
    assert!(refused.message.contains("--role relay"), "{refused:?}");
    let stranger = Host::new("x").caller();
    let refused = post(&mesh.oracle, stranger, "/v1/addresses", &request).await.refusal();
    assert_eq!((refused.1.as_str(), mesh.newest()), ("not_member", before));
}

async fn revoke(mesh: &Mesh, by: Caller, member: impl ToString) -> Result<RevokeReply, String> {
    let request = RevokeRequest { member: member.to_string() };
    let answer = post(&mesh.oracle, by, "/v1/revoke", &request).await;
    answer.result().map_err(|error| error.code)
}

#[tokio::test]
async fn a_revoked_key_cannot_rejoin_but_its_name_can_be_reused() {
    let mesh = Mesh::found().await;
    let host = mesh.joined("ber").await;
    let before = mesh.newest().version;
    let reply = revoke(&mesh, mesh.founder.caller(), "ber").await.unwrap();
    assert_eq!((reply.name.as_str(), mesh.newest().version), ("ber", reply.version));
    assert!(reply.version > before && mesh.newest().by_key(&host.client.id()).is_none());
    assert_eq!(get(&mesh.oracle, host.caller(), "/v1/status").await.refusal().1, "not_member");
    let token = mesh.token().await;
    assert_eq!(mesh.join(&host, &token).await.unwrap_err().code, "key_revoked");
    // Nor does a new node key help if the client key was revoked.
    let half = Host { node: Host::new("x").node, ..host.again("ham") };
    assert_eq!(mesh.join(&half, &token).await.unwrap_err().code, "key_revoked");
    mesh.join(&Host::new("ber"), &token).await.unwrap();
}

#[tokio::test]
async fn members_are_revoked_by_name_and_by_either_key() {
    let mesh = Mesh::found().await;
    let (a, b, c) = (mesh.joined("a").await, mesh.joined("b").await, mesh.joined("c").await);
    for who in [a.name, b.node.id().to_string(), c.client.id().to_string()] {
        revoke(&mesh, Caller::Local, &who).await.unwrap();
        assert_eq!(revoke(&mesh, Caller::Local, who).await.unwrap_err(), "already_revoked");
    }
    assert_eq!(mesh.newest().members.len(), 1);
    for nobody in ["d", "", "…", &"0".repeat(64), &"x".repeat(10_000)] {
        assert_eq!(revoke(&mesh, Caller::Local, nobody).await.unwrap_err(), "unknown_member");
    }
}

#[tokio::test]
async fn members_cannot_revoke_themselves_or_the_last_oracle() {
    let mesh = Mesh::found().await;
    assert_eq!(revoke(&mesh, Caller::Local, "fra").await.unwrap_err(), "last");
    let roles = [Role::Admin].into();
    let token = mesh.token_with(TokenRequest { roles, ..token_request() }).await;
    let admin = Host::new("admin");
    mesh.join(&admin, &token).await.unwrap();
    assert_eq!(revoke(&mesh, peer(admin.client.id()), "admin").await.unwrap_err(), "yourself");
    assert_eq!(revoke(&mesh, admin.caller(), "fra").await.unwrap_err(), "last");
    revoke(&mesh, mesh.founder.caller(), "admin").await.unwrap();
}

#[tokio::test]
async fn a_retried_join_does_not_readmit_a_revoked_host() {
    let mesh = Mesh::found().await;
    let (host, token) = (Host::new("ber"), mesh.token().await);
    mesh.join(&host, &token).await.unwrap();
    revoke(&mesh, Caller::Local, "ber").await.unwrap();
    assert_eq!(mesh.join(&host, &token).await.unwrap_err().code, "key_revoked");
}

#[tokio::test]
async fn versions_grow_over_restarts_and_kills() {
    let mut mesh = Mesh::found().await;
    let mut last = mesh.newest().version;
    for n in 0..5 {
        mesh.joined(&format!("host-{n}")).await;
        mesh.reopen().await;
        let roster = mesh.newest();
        assert!(roster.version > last);
        assert_eq!(roster.members.len(), n + 2);
        last = roster.version;
    }
}

#[tokio::test]
async fn versions_grow_even_if_a_restart_finds_the_clock_behind() {
    let mut mesh = Mesh::found().await;
    let before = mesh.newest().version;
    mesh.hand.back(300 * DAY);
    mesh.reopen().await;
    assert_eq!(mesh.newest().version, before + 1);
}

#[tokio::test]
async fn two_oracles_on_one_database_take_over_each_others_rosters() {
    let mesh = Mesh::found().await;
    let second = mesh.open().await.unwrap();
    // The second has published at its start; the first takes that over.
    mesh.oracle.tick().await.unwrap();
    assert_eq!(mesh.newest(), newest(&second));
    mesh.joined("ber").await;
    second.tick().await.unwrap();
    assert_eq!(mesh.newest(), newest(&second));
    let by_second = second.revoke(&Caller::Local, RevokeRequest { member: "ber".into() }).await;
    assert!(by_second.unwrap().version > mesh.newest().version);
    mesh.oracle.tick().await.unwrap();
    assert_eq!(mesh.newest().members.len(), 1);
}

#[tokio::test]
async fn a_waiting_member_gets_the_next_roster_even_if_it_is_revoked() {
    let mesh = Mesh::found().await;
    let host = mesh.joined("ber").await;
    let after = mesh.newest().version;
    let path = format!("/v1/roster?after={after}&wait_s=60");
    let (oracle, caller) = (mesh.oracle.clone(), host.caller());
    let wait = tokio::spawn(async move { get(&oracle, caller, &path).await });
    mesh.until(|oracle| oracle.waiting() == 1).await;
    revoke(&mesh, Caller::Local, "ber").await.unwrap();
    let answer = wait.await.unwrap();
    assert_eq!(answer.status, 200);
    let roster = verified(&answer.body, mesh.oracle.mesh());
    assert_eq!(roster, mesh.newest());
    assert_eq!(mesh.oracle.waiting(), 0);
}

#[tokio::test]
async fn a_wait_without_a_newer_roster_ends_with_no_content() {
    let mesh = Mesh::found().await;
    let version = mesh.newest().version;
    let nothing = get(&mesh.oracle, Caller::Local, &format!("/v1/roster?after={version}")).await;
    assert_eq!(nothing.status, 204);
    let path = format!("/v1/roster?after={version}&wait_s=1");
    assert_eq!(get(&mesh.oracle, Caller::Local, &path).await.status, 204);
    let older = get(&mesh.oracle, Caller::Local, "/v1/roster").await;
    assert_eq!(verified(&older.body, mesh.oracle.mesh()), mesh.newest());
}

#[tokio::test]
async fn a_member_has_at_most_eight_waiting_requests() {
    let mesh = Mesh::found().await;
    let host = mesh.joined("ber").await;
    let path = format!("/v1/roster?after={}&wait_s=60", mesh.newest().version);
    let waits: Vec<_> = (0..8)
        .map(|_| {
            let (oracle, caller, path) = (mesh.oracle.clone(), host.caller(), path.clone());
            tokio::spawn(async move { get(&oracle, caller, &path).await })
        })
        .collect();
    mesh.until(|oracle| oracle.waiting() == 8).await;
    let ninth = get(&mesh.oracle, host.caller(), &path).await;
    assert_eq!(ninth.refusal(), (429, "too_many_waiting".into()));
    assert!(ninth.retry_after.is_some());
    mesh.joined("ham").await;
    for wait in waits {
        assert_eq!(wait.await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn stopping_ends_waiting_requests() {
    let mesh = Mesh::found().await;
    let path = format!("/v1/roster?after={}&wait_s=60", mesh.newest().version);
    let oracle = mesh.oracle.clone();
    let wait = tokio::spawn(async move { get(&oracle, Caller::Local, &path).await });
    mesh.until(|oracle| oracle.waiting() == 1).await;
    mesh.oracle.run(async {}).await;
    assert_eq!(wait.await.unwrap().status, 204);
    let late = get(&mesh.oracle, Caller::Local, "/v1/roster").await;
    assert_eq!(late.status, 200, "reads go on");
    let error = revoke(&mesh, Caller::Local, "fra").await.unwrap_err();
    assert_eq!(error, "storage");
}

#[tokio::test]
async fn status_shows_when_members_asked_and_their_versions() {
    let mesh = Mesh::found().await;
    let host = mesh.joined("ber").await;
    let version = mesh.newest().version;
    let path = format!("/v1/roster?after={version}");
    assert_eq!(get(&mesh.oracle, host.caller(), &path).await.status, 204);
    let status = mesh.oracle.status();
    assert_eq!((status.mesh, status.version), (mesh.oracle.mesh(), version));
    mesh.joined("ham").await;
    let status = mesh.oracle.status();
    let [ber, fra, ham] = &status.members[..] else { panic!("{status:?}") };
    assert_eq!((ber.version, ber.seen.is_some()), (Some(version), true));
    assert_eq!((ham.version, ham.seen), (None, None));
    assert_eq!((fra.version, fra.seen), (Some(status.version), Some(Duration::ZERO)));
    let version = status.version;
    // A member with a higher version shows that the oracle's state was rolled back. Reported once.
    for _ in 0..2 {
        let path = format!("/v1/roster?after={}", version + 5);
        assert_eq!(get(&mesh.oracle, host.caller(), &path).await.status, 204);
    }
    let ahead = |e: &&Event| matches!(e, Event::Ahead { has, .. } if *has == version + 5);
    assert_eq!(mesh.events.lock().unwrap().iter().filter(ahead).count(), 1);
}
