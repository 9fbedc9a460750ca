//! Tokens, and hosts that join with them.

use crate::harness::{
    HOUR, Host, Mesh, address, no_secret, peer, peer_from, post, token_request, verified,
};
use data_encoding::HEXLOWER;
use sqlx::Connection as _;
use std::{sync::Arc, time::Duration};
use thalweg_net::PrivateKey;
use thalweg_oracle::{Caller, Event, OracleError, Refusal};
use thalweg_units::WallTime;
use thalweg_wire::{
    Signed, Signer as _,
    mesh::{
        ClientBinding, JoinReply, JoinRequest, RevokeRequest, Role, Token, TokenRequest,
        measure::PathsReply,
    },
};
use tokio::sync::Barrier;

#[tokio::test]
async fn a_host_joins_once_with_the_roles_and_tags_of_its_token() {
    let mesh = Mesh::found().await;
    let before = mesh.newest().version;
    let tags = ["country=de".parse().unwrap()].into();
    let token = mesh.token_with(TokenRequest { tags, ..token_request() }).await;
    assert_eq!((token.mesh, token.oracle), (mesh.oracle.mesh(), mesh.founder.node.id()));
    let host = Host::new("ber");
    let reply = mesh.join(&host, &token).await.unwrap();
    let roster = verified(&HEXLOWER.decode(reply.roster.as_bytes()).unwrap(), mesh.oracle.mesh());
    assert!(roster.version > before);
    let member = roster.by_name(&reply.name).unwrap();
    assert_eq!(member.roles, [Role::Client, Role::Relay].into());
    assert_eq!(member.tags, ["country=de".parse().unwrap()].into());
    assert_eq!((member.node, member.client), (Some(host.node.id()), host.client.id()));
    assert_eq!(roster, mesh.newest(), "published before it was answered");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_twenty_racing_hosts_joins_with_a_token() {
    let mesh = Arc::new(Mesh::found().await);
    let token = mesh.token().await;
    let barrier = Arc::new(Barrier::new(20));
    let race = (0..20).map(|n| {
        let (mesh, token, barrier) = (mesh.clone(), token.clone(), barrier.clone());
        tokio::spawn(async move {
            let host = Host::new(&format!("host-{n}"));
            // Each from an address of its own: one address has eight connections at a time.
            let caller = peer_from(host.node.id(), &format!("10.0.0.{n}"));
            let request = host.request(&token, mesh.hand.now());
            barrier.wait().await;
            post(&mesh.oracle, caller, "/v1/join", &request).await.result::<JoinReply>()
        })
    });
    let mut won = Vec::new();
    for one in race.collect::<Vec<_>>() {
        match one.await.unwrap() {
            Ok(reply) => won.push(reply.name),
            Err(error) => assert_eq!(error.code, "token_used", "{}", error.message),
        }
    }
    let members = mesh.newest().members;
    assert_eq!(won.len(), 1, "{won:?}");
    assert_eq!(members.len(), 2);
    assert!(members.iter().any(|m| m.name == won[0]));
}

#[tokio::test]
async fn a_repeated_join_with_the_same_keys_gets_the_same_answer() {
    let mesh = Mesh::found().await;
    let token = mesh.token().await;
    let host = Host::new("ber");
    let first = mesh.join(&host, &token).await.unwrap();
    assert_eq!(mesh.join(&host, &token).await.unwrap(), first);
    // The first answer may have been lost, so the keys get it under another name and after the token's expiry, too.
    mesh.hand.forward(2 * HOUR);
    let again = mesh.join(&host.again("other"), &token).await.unwrap();
    assert_eq!((&again.name, &again.roster), (&first.name, &first.roster));
    let other = mesh.join(&Host::new("ham"), &token).await.unwrap_err();
    assert_eq!(other.code, "token_used");
    let half = Host { client: PrivateKey::generate().unwrap(), ..host.again("ber") };
    assert_eq!(mesh.join(&half, &token).await.unwrap_err().code, "token_used");
    assert_eq!(mesh.newest().members.len(), 2);
}

#[tokio::test]
async fn an_expired_token_is_refused_with_its_age_and_the_clock_skew() {
    let mesh = Mesh::found().await;
    let token = mesh.token().await;
    mesh.hand.forward(HOUR + Duration::from_secs(90));
    let host = Host::new("ber");
    let error = mesh.join(&host, &token).await.unwrap_err();
    assert_eq!(error.code, "token_expired");
    assert!(error.message.contains("expired 90 s ago"), "{}", error.message);
    assert!(!error.message.contains("clock is"), "{}", error.message);
    let behind = WallTime::from_unix_nanos(mesh.hand.now().as_unix_nanos() - 2 * 3_600_000_000_000);
    let request = host.request(&token, behind);
    let error = post(&mesh.oracle, host.caller(), "/v1/join", &request).await.error();
    assert!(error.message.contains("2 h behind"), "{}", error.message);
    assert_eq!(mesh.newest().members.len(), 1);
}

#[tokio::test]
async fn a_token_can_be_bound_to_a_name() {
    let mesh = Mesh::found().await;
    let name = Some("ber".parse().unwrap());
    let token = mesh.token_with(TokenRequest { name, ..token_request() }).await;
    assert_eq!(mesh.join(&Host::new("ham"), &token).await.unwrap_err().code, "token_name");
    mesh.join(&Host::new("ber"), &token).await.unwrap();
}

#[tokio::test]
async fn a_refused_join_leaves_the_token_free() {
    let mesh = Mesh::found().await;
    let token = mesh.token().await;
    let host = Host::new("fra");
    assert_eq!(mesh.join(&host, &token).await.unwrap_err().code, "name_taken");
    // The name that stands for a free slot in `GET /v1/paths`.
    let nobody = Host::new(PathsReply::FREE);
    assert_eq!(mesh.join(&nobody, &token).await.unwrap_err().code, "name_taken");
    let founder = mesh.founder.again("ber");
    assert_eq!(mesh.join(&founder, &token).await.unwrap_err().code, "key_taken");
    mesh.join(&host.again("ber"), &token).await.unwrap();
}

/// The code of the refusal of a valid request after `alter`.
async fn refused(
    mesh: &Mesh,
    token: &Token,
    alter: impl FnOnce(&Host, &mut JoinRequest),
) -> String {
    let host = Host::new("ber");
    let mut request = host.request(token, mesh.hand.now());
    alter(&host, &mut request);
    post(&mesh.oracle, host.caller(), "/v1/join", &request).await.error().code
}

fn bind(host: &Host, binding: ClientBinding) -> String {
    HEXLOWER.encode(&Signed::sign(binding, &host.client).encode())
}

#[tokio::test]
async fn mismatched_keys_are_refused() {
    let mesh = Mesh::found().await;
    let token = mesh.token().await;
    let (m, hash) = (token.mesh, token.secret.hash());
    let wrong = |_: &Host, r: &mut JoinRequest| r.client = "00".into();
    assert_eq!(refused(&mesh, &token, wrong).await, "keys");
    let flipped = |_: &Host, r: &mut JoinRequest| r.client.replace_range(90..92, "ee");
    assert_eq!(refused(&mesh, &token, flipped).await, "keys");
    let other_mesh = |h: &Host, r: &mut JoinRequest| {
        r.client = bind(h, ClientBinding { mesh: h.node.id(), node: r.node, token: hash });
    };
    assert_eq!(refused(&mesh, &token, other_mesh).await, "keys");
    let other_node = |h: &Host, r: &mut JoinRequest| {
        r.client = bind(h, ClientBinding { mesh: m, node: None, token: hash });
    };
    assert_eq!(refused(&mesh, &token, other_node).await, "keys");
    let other_token = |h: &Host, r: &mut JoinRequest| {
        r.client = bind(h, ClientBinding { mesh: m, node: r.node, token: [0; 32] });
    };
    assert_eq!(refused(&mesh, &token, other_token).await, "keys");
    // The connection proves another key than the joining one.
    let host = Host::new("ber");
    let request = host.request(&token, mesh.hand.now());
    let answer = post(&mesh.oracle, peer(host.client.id()), "/v1/join", &request).await;
    assert_eq!(answer.refusal(), (400, "keys".into()));
    assert_eq!(mesh.newest().members.len(), 1);
}

#[tokio::test]
async fn a_host_without_a_daemon_joins_with_its_client_key_and_relays_nothing() {
    let mesh = Mesh::found().await;
    let join = async |token: &Token| {
        let host = Host::new("laptop");
        let mut request = host.request(token, mesh.hand.now());
        (request.node, request.addresses) = (None, Vec::new());
        let (mesh_key, hash) = (token.mesh, token.secret.hash());
        request.client = bind(&host, ClientBinding { mesh: mesh_key, node: None, token: hash });
        post(&mesh.oracle, peer(host.client.id()), "/v1/join", &request).await
    };
    let answer = join(&mesh.token().await).await;
    assert_eq!(answer.refusal(), (400, "role".into()));
    let client = TokenRequest { roles: [].into(), ..token_request() };
    let reply: JoinReply = join(&mesh.token_with(client).await).await.result().unwrap();
    assert_eq!(mesh.newest().by_name(&reply.name).unwrap().roles, [Role::Client].into());
}

#[tokio::test]
async fn addresses_that_others_cannot_reach_are_refused() {
    let mesh = Mesh::found().await;
    let token = mesh.token().await;
    for bad in [
        "0.0.0.0:7373",
        "[::]:7373",
        "224.0.0.1:7373",
        "255.255.255.255:7373",
        "127.0.0.1:7373",
        "[::1]:7373",
        "[::ffff:127.0.0.1]:7373",
        "169.254.169.254:80",
        "[fe80::1]:7373",
        "[fd00:ec2::254]:80",
        "168.63.129.16:80",
        "[::ffff:100.100.100.200]:80",
        "[ff02::1]:7373",
        "198.51.100.7:25",
        "mail.example:25",
    ] {
        let given = vec![address(), bad.parse().unwrap()];
        let code = refused(&mesh, &token, |_, r| r.addresses = given).await;
        assert_eq!(code, "address", "{bad}");
    }
    let twice = vec![address(), address()];
    assert_eq!(refused(&mesh, &token, |_, r| r.addresses = twice).await, "address");
    assert_eq!(refused(&mesh, &token, |_, r| r.addresses.clear()).await, "role");
    let many = (1..10).map(|n| format!("10.0.0.{n}:1").parse().unwrap()).collect();
    assert_eq!(refused(&mesh, &token, |_, r| r.addresses = many).await, "bad_request");
    // A mesh on one machine has loopback addresses.
    let host = Host::new("ber");
    let mut request = host.request(&token, mesh.hand.now());
    request.addresses = vec!["127.0.0.1:7374".parse().unwrap()];
    let caller = peer_from(host.node.id(), "127.0.0.1");
    let reply = post(&mesh.oracle, caller, "/v1/join", &request).await;
    reply.result::<JoinReply>().unwrap();
}

#[tokio::test]
async fn tokens_have_bounds() {
    let mesh = Mesh::found().await;
    let create = async |request| {
        let error = mesh.oracle.create_token(&Caller::Local, request).await.unwrap_err();
        error.code()
    };
    let tags = (0..33).map(|n| format!("t{n}").parse().unwrap()).collect();
    assert_eq!(create(TokenRequest { tags, ..token_request() }).await, "bad_request");
    let valid = Duration::ZERO;
    assert_eq!(create(TokenRequest { valid, ..token_request() }).await, "bad_request");
    let valid = Duration::MAX;
    assert_eq!(create(TokenRequest { valid, ..token_request() }).await, "bad_request");
    let roles = [Role::Oracle].into();
    if mesh.url.is_none() {
        assert_eq!(create(TokenRequest { roles, ..token_request() }).await, "role");
    }
    let name = Some("fra".parse().unwrap());
    assert_eq!(create(TokenRequest { name, ..token_request() }).await, "name_taken");
}

#[tokio::test]
async fn secrets_are_neither_stored_nor_shown() {
    let mesh = Mesh::found().await;
    let token = mesh.token().await;
    let guess = Token { secret: no_secret(), ..token.clone() };
    assert_eq!(mesh.join(&Host::new("ber"), &guess).await.unwrap_err().code, "token_unknown");
    let secret = format!("{:?}", serde_json::to_string(&token.secret).unwrap());
    let shown = format!("{:?} {:?}", mesh.oracle, mesh.events.lock().unwrap());
    assert!(!shown.contains(&secret) && !shown.contains(&token.to_string()));
    let raw: Vec<u8> =
        serde_json::from_str(&serde_json::to_string(&token.secret).unwrap()).unwrap();
    for bytes in stored_token(&mesh).await {
        let hex = HEXLOWER.encode(&raw);
        let holds = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
        assert!(!holds(&raw) && !holds(hex.as_bytes()), "{}", String::from_utf8_lossy(&bytes));
        assert!(holds(HEXLOWER.encode(&token.secret.hash()).as_bytes()));
    }
}

/// The database's content, in the parts that hold the token.
async fn stored_token(mesh: &Mesh) -> Vec<Vec<u8>> {
    let Some(url) = &mesh.url else {
        let file = |name| std::fs::read(mesh.path().join(name)).unwrap();
        return vec![[file("oracle.db"), file("oracle.db-wal")].concat()];
    };
    let mut other = sqlx::PgConnection::connect(url).await.unwrap();
    let rows = sqlx::query_scalar("SELECT CAST(t AS TEXT) FROM tokens t");
    let rows: Vec<String> = rows.fetch_all(&mut other).await.unwrap();
    rows.into_iter().map(String::into_bytes).collect()
}

#[tokio::test]
async fn a_local_process_has_no_key_to_join_with() {
    let mesh = Mesh::found().await;
    let request = Host::new("ber").request(&mesh.token().await, mesh.hand.now());
    let error = mesh.oracle.join(&Caller::Local, request).await.unwrap_err();
    assert!(matches!(error, OracleError::Refused(Refusal::Keys(_))), "{error}");
}

/// A new member with the role admin, by a token made by `by`.
async fn admin(mesh: &Mesh, name: &str, by: Caller) -> Host {
    let (host, request) = (Host::new(name), admin_token());
    let reply = mesh.oracle.create_token(&by, request).await.unwrap();
    mesh.join(&host, &reply.token.parse().unwrap()).await.unwrap();
    host
}

fn admin_token() -> TokenRequest {
    TokenRequest { roles: [Role::Admin].into(), ..token_request() }
}

#[tokio::test]
async fn a_revoked_admin_cannot_rejoin_with_its_own_token() {
    let mut mesh = Mesh::found().await;
    let out = admin(&mesh, "d2", Caller::Local).await;
    let stays = admin(&mesh, "d3", Caller::Local).await;
    let mut tokens = Vec::new();
    // Made with either of the revoked member's keys, by another admin, and locally.
    for by in [out.caller(), peer(out.client.id()), stays.caller(), Caller::Local] {
        let reply = mesh.oracle.create_token(&by, admin_token()).await.unwrap();
        tokens.push(reply.token.parse::<Token>().unwrap());
    }
    let request = RevokeRequest { member: "d2".into() };
    mesh.oracle.revoke(&stays.caller(), request).await.unwrap();
    // Neither a new host of the same name nor a restart makes them valid again.
    admin(&mesh, "d2", Caller::Local).await;
    mesh.reopen().await;
    for token in &tokens[..2] {
        let error = mesh.join(&Host::new("e2"), token).await.unwrap_err();
        assert_eq!(error.code, "token_void");
        assert!(error.message.contains("ask an admin for another"), "{}", error.message);
    }
    mesh.join(&Host::new("e3"), &tokens[2]).await.unwrap();
    mesh.join(&Host::new("e4"), &tokens[3]).await.unwrap();
}

#[tokio::test]
async fn a_revocation_does_not_void_used_tokens() {
    let mesh = Mesh::found().await;
    let out = admin(&mesh, "d2", Caller::Local).await;
    let reply = mesh.oracle.create_token(&out.caller(), token_request()).await.unwrap();
    let (host, token) = (Host::new("ber"), reply.token.parse().unwrap());
    mesh.join(&host, &token).await.unwrap();
    mesh.oracle.revoke(&Caller::Local, RevokeRequest { member: "d2".into() }).await.unwrap();
    assert_eq!(mesh.join(&host, &token).await.unwrap().name, "ber".parse().unwrap());
}

#[tokio::test]
async fn only_relays_list_addresses() {
    let mesh = Mesh::found().await;
    for (name, role, listed) in [
        ("plain", Role::Client, false),
        ("admin", Role::Admin, false),
        ("relay", Role::Relay, true),
    ] {
        let token = mesh.token_with(TokenRequest { roles: [role].into(), ..token_request() }).await;
        let host = Host::new(name);
        mesh.join(&host, &token).await.unwrap();
        let roster = mesh.newest();
        let member = roster.by_key(&host.node.id()).unwrap();
        assert_eq!(member.addresses.is_empty(), !listed, "{name}");
        let dropped = Event::AddressesDropped { name: name.parse().unwrap() };
        assert_eq!(mesh.events.lock().unwrap().contains(&dropped), !listed, "{name}");
    }
}
