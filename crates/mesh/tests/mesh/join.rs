//! Joining: what is sent, what is stored, and that it can be repeated.

use crate::{
    oracle::{Fake, SEED},
    scene::{BEGIN, HandClock, id, mesh, roster, signed},
    state::fresh,
};
use data_encoding::HEXLOWER;
use thalweg_mesh::{JoinError, JoinOptions, OracleError, State, join};
use thalweg_net::Ed25519;
use thalweg_units::NodeId;
use thalweg_wire::{
    Signed, Signer as _,
    mesh::{ApiError, ClientBinding, Member, Role, Roster, Secret, Token},
};

fn token(fake: &Fake) -> Token {
    let secret = Secret::from_bytes([7; 16]);
    Token { mesh: mesh().id(), oracle: id(SEED), addresses: vec![fake.address.into()], secret }
}

fn wish() -> JoinOptions {
    let addresses = vec!["192.0.2.7:7373".parse().unwrap()];
    JoinOptions { name: Some("fra-1".parse().unwrap()), addresses, daemon: true }
}

/// A roster with this host's keys, and the oracle.
fn roster_with(state: &State, fake: &Fake) -> Roster {
    let mut roster = roster(5, &["a"]);
    let oracle = Member { addresses: vec![fake.address.into()], ..crate::scene::member("o", SEED) };
    let roles = [Role::Client, Role::Oracle].into();
    let client = state.make_client_key().unwrap().id();
    let me = Member {
        node: Some(state.make_node_key().unwrap().id()),
        client,
        ..crate::scene::member("fra-1", 3)
    };
    roster.members.extend([me, Member { roles, client: id(99), ..oracle }]);
    roster
}

async fn try_join(state: &State, token: &Token) -> Result<thalweg_mesh::JoinResult, JoinError> {
    join(state, token, &wish(), HandClock::at(BEGIN).clock()).await
}

#[tokio::test]
async fn a_host_joins_and_can_join_again() {
    let fake = Fake::start(&[], BEGIN + 600).await;
    let (_dir, state) = fresh();
    fake.script.publish(roster_with(&state, &fake));
    for _ in 0..2 {
        let joined = try_join(&state, &token(&fake)).await.unwrap();
        assert_eq!(joined.mesh, state.mesh().unwrap());
        assert_eq!(joined.mesh.name.as_str(), "fra-1");
        assert_eq!(joined.mesh.oracles, [fake.oracle()]);
        assert!(joined.skew.unwrap().to_string().contains("600 s behind"));
        assert_eq!(state.membership().unwrap().current().unwrap().version, 5);
    }
    let joins = fake.script.joins.lock().unwrap();
    assert_eq!(joins[0], joins[1], "the same keys ask the same");
    let (peer, request) = &joins[0];
    let (node, client): (NodeId, NodeId) =
        (state.node_key().unwrap().id(), state.client_key().unwrap().id());
    assert_eq!((*peer, request.node), (node, Some(node)));
    let bound = HEXLOWER.decode(request.client.as_bytes()).unwrap();
    let bound = Signed::<ClientBinding>::open(&bound, &Ed25519).unwrap();
    let token = token(&fake).secret.hash();
    assert_eq!(bound.signer(), client);
    assert_eq!(*bound.value(), ClientBinding { mesh: mesh().id(), node: Some(node), token });
}

#[tokio::test]
async fn without_a_daemon_only_the_clients_key_joins() {
    let fake = Fake::start(&[], BEGIN).await;
    let (_dir, state) = fresh();
    let mut roster = roster(1, &[]);
    let client = state.make_client_key().unwrap().id();
    roster.members = vec![Member { node: None, client, ..crate::scene::member("fra-1", 3) }];
    fake.script.publish(roster);
    let wish = JoinOptions { daemon: false, ..wish() };
    join(&state, &token(&fake), &wish, HandClock::at(BEGIN).clock()).await.unwrap();
    assert_eq!(fake.script.joins.lock().unwrap()[0].0, client);
    assert!(state.node_key().is_err(), "no key is made that nothing needs");
}

#[tokio::test]
async fn a_member_of_another_mesh_is_refused_before_anything_is_sent() {
    let fake = Fake::start(&[], BEGIN).await;
    let (_dir, state) = fresh();
    fake.script.publish(roster_with(&state, &fake));
    try_join(&state, &token(&fake)).await.unwrap();
    let other = Token { mesh: id(251), ..token(&fake) };
    let error = try_join(&state, &other).await.unwrap_err();
    assert!(matches!(error, JoinError::OtherMesh { .. }), "{error}");
    assert!(error.to_string().contains("`fra-1` in another mesh"), "{error}");
    assert_eq!(fake.script.joins.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_refused_host_stays_outside_and_keeps_its_keys() {
    let fake = Fake::start(&[], BEGIN).await;
    let (_dir, state) = fresh();
    let refusal = ApiError { code: "token_used".into(), message: "the token was used".into() };
    *fake.script.refusal.lock().unwrap() = Some(refusal);
    let error = try_join(&state, &token(&fake)).await.unwrap_err();
    assert!(matches!(error, JoinError::Oracle(OracleError::Refused(_))), "{error}");
    assert_eq!(error.to_string(), "the token was used");
    assert!(!state.has_mesh());
    let key = state.node_key().unwrap().id();
    *fake.script.refusal.lock().unwrap() = None;
    fake.script.publish(roster_with(&state, &fake));
    try_join(&state, &token(&fake)).await.unwrap();
    assert_eq!(state.node_key().unwrap().id(), key);
}

#[tokio::test]
async fn a_roster_that_the_tokens_mesh_did_not_sign_is_refused() {
    let fake = Fake::start(&[], BEGIN).await;
    let (_dir, state) = fresh();
    let good = roster_with(&state, &fake);
    let foreign = Signed::sign(good.clone(), &crate::scene::key(251)).encode();
    fake.script.publish_bytes(5, foreign);
    let error = try_join(&state, &token(&fake)).await.unwrap_err();
    assert!(matches!(error, JoinError::Roster(_)), "{error}");
    fake.script.publish_bytes(5, signed(roster(5, &["a"])));
    let error = try_join(&state, &token(&fake)).await.unwrap_err();
    assert!(matches!(error, JoinError::Answer(_)), "not listed: {error}");
    assert!(!state.has_mesh());
    let later = Roster { version: 6, ..good };
    fake.script.publish(later);
    try_join(&state, &token(&fake)).await.unwrap();
}

#[tokio::test]
async fn the_error_for_an_absent_oracle_names_its_addresses() {
    let fake = Fake::start(&[], BEGIN).await;
    let (_dir, state) = fresh();
    let token = token(&fake);
    fake.stop().await;
    let error = try_join(&state, &token).await.unwrap_err().to_string();
    assert!(error.contains(&token.addresses[0].to_string()), "{error}");
}
