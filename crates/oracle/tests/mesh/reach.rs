//! Members that cannot be dialled state the relays through which they are reached.

use crate::harness::{Host, Mesh, newest, peer, post};
use thalweg_oracle::{Caller, Event};
use thalweg_wire::{
    Signer as _,
    mesh::{ReachReply, ReachRequest, Role, TokenRequest},
};
use tokio::task::JoinSet;

async fn state(mesh: &Mesh, by: Caller, relays: &[&str]) -> Result<ReachReply, String> {
    let relays = relays.iter().map(|name| name.parse().unwrap()).collect();
    let answer = post(&mesh.oracle, by, "/v1/reach", &ReachRequest { relays }).await;
    answer.result().map_err(|error| error.code)
}

/// A client, whose roster entry has no address.
async fn client(mesh: &Mesh, name: &str) -> Host {
    let request = TokenRequest { roles: [Role::Client].into(), ..crate::harness::token_request() };
    let host = Host::new(name);
    mesh.join(&host, &mesh.token_with(request).await).await.unwrap();
    host
}

fn relays_of(mesh: &Mesh, name: &str) -> Vec<String> {
    let roster = newest(&mesh.oracle);
    let member = roster.by_name(&name.parse().unwrap()).unwrap().clone();
    member.reach_relays().map(|relay| relay.to_string()).collect()
}

#[tokio::test]
async fn the_next_roster_has_the_relays_that_a_node_states() {
    let mesh = Mesh::found().await;
    let lap = client(&mesh, "lap").await;
    let reply = state(&mesh, lap.caller(), &["fra"]).await.unwrap();
    assert_eq!(
        (relays_of(&mesh, "lap"), mesh.newest().version),
        (vec!["fra".into()], reply.version)
    );
    // The same again changes nothing.
    assert_eq!(state(&mesh, lap.caller(), &["fra"]).await.unwrap(), reply);
    assert!(state(&mesh, lap.caller(), &[]).await.unwrap().version > reply.version);
    assert_eq!(relays_of(&mesh, "lap"), [""; 0]);
}

#[tokio::test]
async fn only_nodes_state_relays_and_only_relays_with_an_address() {
    let mesh = Mesh::found().await;
    let lap = client(&mesh, "lap").await;
    for relays in [&["lap"][..], &["nobody"], &["fra", "fra"], &["fra", "nyc", "ber"]] {
        assert_eq!(state(&mesh, lap.caller(), relays).await.unwrap_err(), "bad_request");
    }
    let command_line = peer(lap.client.id());
    assert_eq!(state(&mesh, command_line, &["fra"]).await.unwrap_err(), "bad_request");
    let stranger = Host::new("stranger").caller();
    assert_eq!(state(&mesh, stranger, &["fra"]).await.unwrap_err(), "not_member");
}

#[tokio::test]
async fn many_statements_share_rosters_and_one_member_may_not_change_them_without_end() {
    let mesh = Mesh::found().await;
    let mut hosts = Vec::new();
    for n in 0..20 {
        hosts.push(client(&mesh, &format!("lap{n}")).await);
    }
    let published = |mesh: &Mesh| {
        let is_one = |event: &&Event| matches!(event, Event::Published { .. });
        mesh.events.lock().unwrap().iter().filter(is_one).count()
    };
    let before = published(&mesh);
    let mut all = JoinSet::new();
    for host in &hosts {
        let (oracle, caller) = (mesh.oracle.clone(), host.caller());
        let request = ReachRequest { relays: vec!["fra".parse().unwrap()] };
        all.spawn(async move {
            post(&oracle, caller, "/v1/reach", &request).await.result::<ReachReply>().is_ok()
        });
    }
    assert!(all.join_all().await.into_iter().all(|is_ok| is_ok));
    assert!((0..20).all(|n| relays_of(&mesh, &format!("lap{n}")) == ["fra"]));
    assert!(published(&mesh) - before <= 3, "{}", published(&mesh) - before);
    let mut refused = None;
    for n in 0..20 {
        let relays: &[&str] = if n % 2 == 0 { &[] } else { &["fra"] };
        refused = state(&mesh, hosts[0].caller(), relays).await.err();
        if refused.is_some() {
            break;
        }
    }
    assert_eq!(refused.as_deref(), Some("rate_limited"));
}
