//! Tests of redirects between http and https, and of where passwords are sent.

use super::{
    Trial,
    authority::Authority,
    file,
    server::{Server, Site},
};
use std::sync::Arc;
use thalweg_get::{Credentials, HttpVersion};

/// The `Authorization` of each request so far.
fn told(server: &Server) -> Vec<Option<String>> {
    let field = |a: super::server::Ask| {
        a.fields.get("authorization").map(|v| v.to_str().unwrap().to_owned())
    };
    server.asks().into_iter().map(field).collect()
}

#[tokio::test]
async fn http_may_lead_to_https_and_not_the_other_way() {
    let authority = Authority::new();
    let tls = || Some(authority.server(&["localhost"], &[]));
    let secure = Server::start(tls(), Site::File(file())).await;
    let to = format!("https://localhost:{}/file.bin", secure.address.port());
    let plain = Server::start(None, Site::Moved(to)).await;
    let url = format!("http://localhost:{}/file.bin", plain.address.port());
    Trial::of(&url, &authority, HttpVersion::Http1).gets(&file()).await;

    let plain = Server::start(None, Site::File(file())).await;
    let to = format!("http://localhost:{}/file.bin", plain.address.port());
    let secure = Server::start(tls(), Site::Moved(to)).await;
    let url = format!("https://localhost:{}/file.bin", secure.address.port());
    let message = Trial::of(&url, &authority, HttpVersion::Http1).fails().await;
    assert!(message.contains("leads from https"), "{message}");
    assert_eq!(plain.asks().len(), 0);
}

#[tokio::test]
async fn a_password_goes_to_its_origin_alone_and_into_no_event() {
    let authority = Authority::new();
    let tls = || Some(authority.server(&["localhost"], &[]));
    let other = Server::start(tls(), Site::File(file())).await;
    let to = format!("https://localhost:{}/file.bin", other.address.port());
    let first = Server::start(tls(), Site::Moved(to)).await;
    let port = first.address.port();
    let url = format!("https://me:pass-w0rd@localhost:{port}/file.bin");
    let trial = Trial::of(&url, &authority, HttpVersion::Http1);
    trial.gets(&file()).await;
    // me:pass-w0rd in base64.
    let basic = Some("Basic bWU6cGFzcy13MHJk".to_owned());
    assert!(told(&first).iter().all(|t| *t == basic), "{:?}", told(&first));
    assert!(told(&other).iter().all(Option::is_none), "{:?}", told(&other));
    let shown = format!("{:?} {:?}", trial.told(), trial.request.url);
    assert!(!shown.contains("pass-w0rd") && !shown.contains("bWU6"), "{shown}");
}

#[tokio::test]
async fn credentials_by_host_go_wherever_tls_proves_the_host() {
    let authority = Authority::new();
    let mut credentials = Credentials::default();
    credentials.add("localhost", "me", "pass-w0rd");
    let credentials = Arc::new(credentials);
    let basic = Some("Basic bWU6cGFzcy13MHJk".to_owned());
    for (tls, expected) in [(true, &basic), (false, &None)] {
        let config = tls.then(|| authority.server(&["localhost"], &[]));
        let last = Server::start(config, Site::File(file())).await;
        let scheme = if tls { "https" } else { "http" };
        let to = format!("{scheme}://localhost:{}/file.bin", last.address.port());
        let first = Server::start(None, Site::Moved(to)).await;
        let url = format!("http://127.0.0.1:{}/file.bin", first.address.port());
        let mut trial = Trial::of(&url, &authority, HttpVersion::Http1);
        trial.request.web.credentials = Arc::clone(&credentials);
        trial.gets(&file()).await;
        assert!(told(&last).iter().all(|t| t == expected), "{scheme}: {:?}", told(&last));
    }
}
