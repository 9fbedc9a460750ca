//! Tests of servers that cannot prove their name.

use super::{
    Trial,
    authority::Authority,
    file,
    server::{Server, Site},
};
use thalweg_get::HttpVersion;

#[tokio::test]
async fn a_server_that_does_not_prove_its_name_gets_no_request() {
    let (ours, stranger, impostor) =
        (Authority::new(), Authority::called("a stranger"), Authority::new());
    for (tls, words) in [
        (
            ours.server(&["other.example", "10.0.0.1"], &[]),
            &["other.example, 10.0.0.1", "not for"][..],
        ),
        (stranger.server(&["localhost"], &[]), &["--cacert", "not signed by an authority"]),
        (impostor.server(&["localhost"], &[]), &["--cacert", "not signed by an authority"]),
        (ours.server_until(2020, &["localhost"], &[]), &["01 Jan 2020", "clock says"]),
    ] {
        let server = Server::start(Some(tls), Site::File(file())).await;
        let url = format!("https://localhost:{}/file.bin", server.address.port());
        let message = Trial::of(&url, &ours, HttpVersion::Http1).fails().await;
        for word in words {
            assert!(message.contains(word), "`{word}` is not in: {message}");
        }
        assert_eq!(server.asks().len(), 0, "{message}");
    }
}

#[tokio::test]
async fn a_server_without_tls_is_reported_as_such() {
    let server = Server::start(None, Site::File(file())).await;
    let url = format!("https://{}/file.bin", server.address);
    let message = Trial::of(&url, &Authority::new(), HttpVersion::Http1).fails().await;
    assert!(message.contains("is not TLS"), "{message}");
}

#[tokio::test]
async fn a_connection_cut_without_close_notify_is_not_a_complete_file() {
    let authority = Authority::new();
    let tls = authority.server(&["localhost"], &[]);
    let server = Server::start(Some(tls), Site::Cut(file())).await;
    let url = format!("https://localhost:{}/file.bin", server.address.port());
    let message = Trial::of(&url, &authority, HttpVersion::Http1).fails().await;
    assert!(message.contains("broke"), "{message}");
}
