//! Tests of what relays can see of TLS, and of alterations by relays.

use super::{
    SECRET, Trial,
    authority::Authority,
    file,
    relay::{Deed, Spy},
    server::{Server, Site},
};
use hyper::header::HeaderValue;
use thalweg_get::HttpVersion;
use tokio::sync::watch;

#[tokio::test]
async fn a_relay_sees_neither_the_request_nor_the_file() {
    let authority = Authority::new();
    let tls = authority.server(&["localhost"], &["h2", "http/1.1"]);
    let server = Server::start(Some(tls), Site::File(file())).await;
    for version in [HttpVersion::Http1, HttpVersion::Http2] {
        let spy = Spy::start(server.address, Deed::Nothing).await;
        let url = format!("https://localhost:{}/private-name.bin", server.address.port());
        let mut trial = Trial::of(&url, &authority, version).only(spy.address);
        trial.request.fields.insert("x-token", HeaderValue::from_static("tok-en-value"));
        trial.gets(&file()).await;
        let seen = spy.seen();
        assert!(seen.len() > file().len(), "it carried the file");
        let sees = |what: &str| seen.windows(what.len()).any(|w| w == what.as_bytes());
        // TLS itself sends the name in the clear (SNI); a sealed leg hides it from others.
        assert!(sees("localhost"));
        for hidden in [SECRET, "private-name", "tok-en-value", "GET ", "bytes="] {
            assert!(!sees(hidden), "{hidden}");
        }
    }
}

#[tokio::test]
async fn a_relay_that_alters_a_byte_is_detected_and_the_file_is_correct() {
    let authority = Authority::new();
    let tls = authority.server(&["localhost"], &["h2", "http/1.1"]);
    let server = Server::start(Some(tls), Site::File(file())).await;
    let url = format!("https://localhost:{}/file.bin", server.address.port());
    for version in [HttpVersion::Http1, HttpVersion::Http2] {
        // Far after the handshake, in the middle of the file.
        let liar = Spy::start(server.address, Deed::Flips(200_000)).await;
        let failed = Trial::of(&url, &authority, version).only(liar.address).run().await;
        let failed = failed.unwrap_err();
        assert!(failed.to_string().contains("altered"), "{version:?}: {failed}");
        let blamed: Vec<_> = failed.corrupt.iter().map(|(path, _)| path.clone()).collect();
        assert_eq!(blamed, [liar.address.to_string()], "{version:?} {failed:?}");
        // An honest path that comes too late to prevent the alteration.
        let (go, wait) = watch::channel(false);
        let honest = Spy::start(server.address, Deed::Waits(wait)).await;
        let trial = Trial::of(&url, &authority, version).only(liar.address).through(honest.address);
        let found_out = async {
            while trial.why_dropped(&liar.address.to_string()).is_none() {
                tokio::task::yield_now().await;
            }
            go.send(true).unwrap();
        };
        let whole = file();
        tokio::join!(trial.gets(&whole), found_out);
        let why = trial.why_dropped(&liar.address.to_string()).unwrap();
        assert!(why.contains("altered"), "{version:?}: {why}");
    }
}
