//! Tests of TLS with a web server inside the legs of a mesh.

use super::{CLIENT, all_legs, dialer, listener, route};
use rustls::{ServerConfig, crypto::aws_lc_rs, pki_types::PrivatePkcs8KeyDer};
use std::sync::Arc;
use thalweg_net::{Destination, TlsClient, TlsOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

#[tokio::test]
async fn a_server_proves_its_name_through_every_kind_of_chain() {
    let made = rcgen::generate_simple_self_signed(["web.example".to_owned()]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ca.pem");
    std::fs::write(&file, made.cert.pem()).unwrap();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let client = TlsClient::new(&TlsOptions { extra_roots: vec![file] }, &[]).unwrap();
    let name = Destination::new("web.example", 443).unwrap().host;
    for legs in all_legs() {
        let (listener, to) = listener().await;
        let server = async {
            let mut peer = acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
            let mut request = [0; 7];
            peer.read_exact(&mut request).await.unwrap();
            peer.write_all(&request.repeat(10_000)).await.unwrap();
            peer.shutdown().await.unwrap();
        };
        let (route, _relays) = route(&legs).await;
        let asking = async {
            let stream = dialer(CLIENT).dial(&route, &to).await.unwrap();
            let mut tls = client.connect(stream, &name).await.unwrap();
            tls.write_all(b"request").await.unwrap();
            tls.flush().await.unwrap();
            let mut answer = Vec::new();
            tls.read_to_end(&mut answer).await.unwrap();
            answer
        };
        let ((), answer) = tokio::join!(server, asking);
        assert_eq!(answer, b"request".repeat(10_000), "{legs:?}");
    }
}
