//! What a node reports to its owner.

use super::fixture::Fixture;
use std::{os::unix::fs::PermissionsExt as _, time::Duration};
use thalweg_mesh::service::Control as _;
use thalweg_node::daemon::{LocalClient, LocalError};
use thalweg_wire::mesh::{RevokeRequest, TokenRequest};

#[tokio::test]
async fn the_owner_sees_the_status_and_asks_the_oracle_through_the_node() {
    let node = Fixture::start().await;
    let mode = std::fs::metadata(&node.socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let local = node.local().await;
    let status = local.node_status().await.unwrap();
    assert_eq!((status.name.as_str(), status.key), ("n1", node.key));
    assert_eq!(status.listen, [node.at]);
    assert_eq!(status.roster.unwrap().version, 1);
    assert_eq!(status.relay["connections"], 7);
    assert!(!status.oracle.reached && !status.oracle.inside);
    assert_eq!(status.oracle.error.as_deref(), Some("it is far away"));
    assert_eq!(local.roster().await.unwrap().members.len(), 3);

    let request = TokenRequest {
        roles: [].into(),
        tags: [].into(),
        name: Some("n4".parse().unwrap()),
        valid: Duration::from_secs(60),
    };
    assert_eq!(local.token(request).await.unwrap().token, "token for n4");
    let refused = local.revoke(RevokeRequest { member: "x".into() }).await.unwrap_err();
    assert_eq!(refused.code, "unknown_member");
    assert_eq!(refused.message, "no member is called x");
}

#[tokio::test]
async fn without_a_daemon_the_error_says_how_to_start_one() {
    let dir = tempfile::tempdir().unwrap();
    let none = LocalClient::find(&dir.path().join("node.sock")).await.unwrap_err();
    assert!(matches!(none, LocalError::NoDaemon(_)));
    assert!(none.to_string().contains("thalweg node"), "{none}");
}

#[tokio::test]
async fn a_daemon_whose_roles_have_changed_asks_for_a_restart() {
    let node = Fixture::start().await;
    let local = node.local().await;
    node.publish(2, &[1, 2, 3]);
    assert_eq!(local.node_status().await.unwrap().restart, None);
    // It is no longer a member, and so it has lost its role as a relay.
    node.publish(3, &[2, 3]);
    let why = local.node_status().await.unwrap().restart.unwrap();
    assert!(why.contains("but it started with client, relay"), "{why}");
}
