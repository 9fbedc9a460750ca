//! Tests of the HTTP version in use, and of downloads with both.

use super::{
    Trial,
    authority::Authority,
    file, relay,
    server::{Server, Site},
};
use hyper::Version;
use thalweg_get::HttpVersion;
use tokio::task::JoinSet;

#[tokio::test]
async fn the_highest_common_version_is_used() {
    let authority = Authority::new();
    for (wanted, offered, spoken) in [
        (HttpVersion::Http1, &["h2", "http/1.1"][..], Version::HTTP_11),
        (HttpVersion::Http1, &[], Version::HTTP_11),
        (HttpVersion::Http2, &["h2", "http/1.1"], Version::HTTP_2),
        (HttpVersion::Http2, &["http/1.1"], Version::HTTP_11),
        (HttpVersion::Http2, &[], Version::HTTP_11),
    ] {
        let tls = authority.server(&["localhost", "127.0.0.1"], offered);
        let server = Server::start(Some(tls), Site::File(file())).await;
        let at = server.address;
        for host in ["localhost", "127.0.0.1"] {
            let url = format!("https://{host}:{}/file.bin", at.port());
            Trial::of(&url, &authority, wanted).gets(&file()).await;
            let asked = server.asks().pop().unwrap();
            assert_eq!(asked.authority, format!("{host}:{}", at.port()));
        }
        let versions: Vec<_> = server.asks().into_iter().map(|a| a.version).collect();
        assert!(versions.iter().all(|v| *v == spoken), "{wanted:?} {offered:?}: {versions:?}");
    }
}

/// 70 kB on HTTP/1.1; by HTTP/2's count 130 kB.
#[tokio::test]
async fn answers_may_have_two_thousand_fields() {
    let authority = Authority::new();
    for version in [HttpVersion::Http1, HttpVersion::Http2] {
        let tls = authority.server(&["localhost"], &["h2", "http/1.1"]);
        let server = Server::start(Some(tls), Site::Wordy(file(), 2000)).await;
        let url = format!("https://localhost:{}/file.bin", server.address.port());
        Trial::of(&url, &authority, version).gets(&file()).await;
    }
}

#[tokio::test]
async fn the_direct_path_and_real_relays_deliver_a_file_together() {
    let authority = Authority::new();
    for version in [HttpVersion::Http1, HttpVersion::Http2] {
        let tls = authority.server(&["localhost"], &["h2", "http/1.1"]);
        let server = Server::start(Some(tls), Site::File(file())).await;
        let mut tasks = JoinSet::new();
        let relays = [
            relay::real(server.address, &mut tasks).await,
            relay::real(server.address, &mut tasks).await,
        ];
        let url = format!("https://localhost:{}/file.bin", server.address.port());
        let trial = Trial::of(&url, &authority, version).through(relays[0]).through(relays[1]);
        trial.gets(&file()).await;
        assert_eq!(relays.map(|r| trial.why_dropped(&r.to_string())), [None, None]);
        let alone = Trial::of(&url, &authority, version).only(relays[0]);
        alone.gets(&file()).await;
    }
}
