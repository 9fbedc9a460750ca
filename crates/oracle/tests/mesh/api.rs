//! Access to the routes, and answers to invalid requests.

use crate::harness::{Host, Mesh, get, peer, post, send, token_of, token_request};
use hyper::Method;
use proptest::{prelude::*, test_runner::TestRunner};
use serde_json::{Value, json};
use thalweg_oracle::{Caller, JoinLimits};
use thalweg_wire::{
    Signer as _,
    mesh::{RevokeRequest, Role, TokenRequest},
};

const ROUTES: [(Method, &str); 5] = [
    (Method::POST, "/v1/join"),
    (Method::GET, "/v1/roster"),
    (Method::GET, "/v1/status"),
    (Method::POST, "/v1/tokens"),
    (Method::POST, "/v1/revoke"),
];

/// Status and code for each route, with an empty body where a body is needed: an authorised caller is told that the
/// body is invalid.
async fn answers(mesh: &Mesh, caller: Caller) -> [(u16, String); 5] {
    let mut out = Vec::new();
    for (method, path) in ROUTES {
        let answer = send(&mesh.oracle, caller, method, path, Vec::new()).await;
        let code = if answer.status.is_success() { String::new() } else { answer.error().code };
        out.push((answer.status.as_u16(), code));
    }
    out.try_into().unwrap()
}

fn expected(codes: [(u16, &str); 5]) -> [(u16, String); 5] {
    codes.map(|(status, code)| (status, code.to_owned()))
}

#[tokio::test]
async fn every_route_checks_the_role_of_its_caller() {
    let mesh = Mesh::found().await;
    let member = mesh.joined("ber").await;
    let revoked = mesh.joined("ham").await;
    let request = RevokeRequest { member: "ham".into() };
    post(&mesh.oracle, Caller::Local, "/v1/revoke", &request).await.result::<Value>().unwrap();
    const JOIN: (u16, &str) = (400, "bad_request");
    let all = expected([JOIN, (200, ""), (200, ""), JOIN, JOIN]);
    for admin in [Caller::Local, mesh.founder.caller(), peer(mesh.founder.client.id())] {
        assert_eq!(answers(&mesh, admin).await, all, "{admin:?}");
    }
    let not = (403, "not_admin");
    let some = expected([JOIN, (200, ""), (200, ""), not, not]);
    for caller in [member.caller(), peer(member.client.id())] {
        assert_eq!(answers(&mesh, caller).await, some);
    }
    let not = (403, "not_member");
    let none = expected([JOIN, not, not, not, not]);
    for caller in [Host::new("x").caller(), revoked.caller(), peer(revoked.client.id())] {
        assert_eq!(answers(&mesh, caller).await, none);
    }
}

#[tokio::test]
async fn an_admin_creates_tokens_and_appears_in_the_events() {
    let mesh = Mesh::found().await;
    let roles = [Role::Admin].into();
    let request = TokenRequest { roles, ..token_request() };
    let answer = post(&mesh.oracle, mesh.founder.caller(), "/v1/tokens", &request).await;
    let admin = Host::new("adm");
    mesh.join(&admin, &token_of(&answer)).await.unwrap();
    let caller = peer(admin.client.id());
    let answer = post(&mesh.oracle, caller, "/v1/tokens", &token_request()).await;
    mesh.join(&Host::new("ber"), &token_of(&answer)).await.unwrap();
    let revoke = RevokeRequest { member: "ber".into() };
    post(&mesh.oracle, caller, "/v1/revoke", &revoke).await.result::<Value>().unwrap();
    let told: Vec<_> = mesh.events.lock().unwrap().iter().map(ToString::to_string).collect();
    for line in ["join token made by fra", "join token made by adm", "ber revoked by adm"] {
        assert!(told.iter().any(|t| t == line), "{line} is not in {told:#?}");
    }
}

#[tokio::test]
async fn a_request_without_a_caller_is_refused_like_a_strangers() {
    let mesh = Mesh::found().await;
    let (ours, theirs) = tokio::io::duplex(4096);
    let service = hyper_util::service::TowerToHyperService::new(mesh.oracle.router());
    let io = hyper_util::rt::TokioIo::new(theirs);
    tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(io, service));
    let io = hyper_util::rt::TokioIo::new(ours);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    let request = hyper::Request::get("/v1/status").header("host", "oracle");
    let request = request.body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap();
    assert_eq!(sender.send_request(request).await.unwrap().status(), 403);
}

#[tokio::test]
async fn unknown_routes_and_long_bodies_are_answered() {
    let mesh = Mesh::found().await;
    let local = Caller::Local;
    assert_eq!(get(&mesh.oracle, local, "/v2/x").await.refusal(), (404, "not_found".into()));
    assert_eq!(get(&mesh.oracle, local, "/v1/join").await.refusal(), (405, "method".into()));
    for query in ["after=x", "after=-1", "wait_s=1.5", "after=99999999999999999999"] {
        let answer = get(&mesh.oracle, local, &format!("/v1/roster?{query}")).await;
        assert_eq!(answer.refusal(), (400, "bad_request".into()), "{query}");
    }
    let unknown = get(&mesh.oracle, local, "/v1/roster?after=1&later=2").await;
    assert_eq!(unknown.status, 200, "what a later version asks beside is ignored");
    let body = vec![b' '; 64 * 1024 + 1];
    for (_, path) in ROUTES.iter().filter(|(method, _)| method == Method::POST) {
        let answer = send(&mesh.oracle, local, Method::POST, path, body.clone()).await;
        assert_eq!(answer.refusal(), (413, "too_large".into()));
    }
}

/// A body that is almost valid: a field is missing, has another type, or is out of range.
fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let good = json!({
        "secret": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16], "name": "ber",
        "node": "ab".repeat(32), "client": "00".repeat(140), "addresses": ["192.0.2.1:7373"],
        "time": 1, "roles": ["relay"], "tags": ["a"], "valid": "1 h", "member": "fra",
    });
    let keys: Vec<_> = good.as_object().unwrap().keys().cloned().collect();
    let value = prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|f| json!(f)),
        any::<String>().prop_map(Value::from),
        "[a-z0-9.:=-]{0,80}".prop_map(Value::from),
        proptest::collection::vec(any::<String>(), 0..4).prop_map(|v| json!(v)),
        Just(json!({"a": [[[[]]]]})),
        Just(json!("1e400 s")),
    ];
    let changes = proptest::collection::vec((proptest::sample::select(keys), value), 0..4);
    let near = changes.prop_map(move |changes| {
        let mut body = good.clone();
        changes.into_iter().for_each(|(key, value)| body[key] = value);
        serde_json::to_vec(&body).unwrap()
    });
    prop_oneof![
        3 => near,
        1 => proptest::collection::vec(any::<u8>(), 0..300),
        1 => Just("[".repeat(10_000).into_bytes()),
    ]
}

/// A mesh without limits on joining.
async fn open_to_all() -> Mesh {
    let burst = 100_000.try_into().unwrap();
    Mesh::found_with(JoinLimits { burst, burst_of_all: burst, ..Default::default() }).await
}

/// The claims of a host with a token about itself.
fn claims() -> impl Strategy<Value = (String, Vec<String>, u64)> {
    let host = prop_oneof![
        any::<std::net::Ipv4Addr>().prop_map(|ip| ip.to_string()),
        any::<std::net::Ipv6Addr>().prop_map(|ip| format!("[{ip}]")),
        "[a-z0-9.-]{0,260}",
    ];
    let address = (host, any::<u16>()).prop_map(|(host, port)| format!("{host}:{port}"));
    let name = prop_oneof!["[a-z0-9][a-z0-9=._-]{0,62}", any::<String>()];
    (name, proptest::collection::vec(address, 0..10), any::<u64>())
}

#[test]
fn no_claim_of_a_joining_host_makes_the_roster_invalid() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mesh = runtime.block_on(open_to_all());
    let mut runner = TestRunner::new(ProptestConfig::with_cases(100));
    let done = runner.run(&claims(), |(name, addresses, time)| {
        let before = mesh.newest();
        let (host, token) = (Host::new("x"), runtime.block_on(mesh.token()));
        let mut request = json!(host.request(&token, mesh.hand.now()));
        request["name"] = json!(name);
        request["addresses"] = json!(addresses);
        request["time"] = json!(time);
        let answer = runtime.block_on(post(&mesh.oracle, host.caller(), "/v1/join", &request));
        prop_assert!(answer.status.as_u16() < 500, "{answer:?}");
        // `newest` verifies it as members do.
        let after = mesh.newest();
        let joined = usize::from(answer.status.is_success());
        prop_assert_eq!(after.members.len(), before.members.len() + joined);
        prop_assert_eq!(after.by_key(&host.node.id()).is_some(), joined == 1);
        Ok(())
    });
    done.unwrap();
    assert!(mesh.newest().members.len() > 1, "some claims are good");
}

#[test]
fn no_body_causes_a_server_error() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mesh = runtime.block_on(open_to_all());
    let stranger = Host::new("x");
    // On failure proptest prints the body and the seed.
    let mut runner = TestRunner::new(ProptestConfig::with_cases(400));
    let done = runner.run(&bodies(), |body| {
        for path in ["/v1/join", "/v1/tokens", "/v1/revoke"] {
            for caller in [stranger.caller(), mesh.founder.caller()] {
                let answer = send(&mesh.oracle, caller, Method::POST, path, body.clone());
                let answer = runtime.block_on(answer);
                prop_assert!(answer.status.as_u16() < 500, "{path} {answer:?}");
                if !answer.status.is_success() {
                    answer.error();
                }
            }
        }
        Ok(())
    });
    done.unwrap();
    assert_eq!(mesh.newest().members.len(), 1);
}
