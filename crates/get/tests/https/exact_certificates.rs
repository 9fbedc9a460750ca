//! Tests of server certificates that the user trusts directly, byte for byte.

use crate::{
    Trial, direct,
    download::{Events, request},
    file,
    server::{Server, Site},
};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, date_time_ymd,
};
use std::sync::Arc;
use tempfile::TempDir;
use thalweg_get::{HttpSettings, HttpVersion};
use thalweg_net::{TlsClient, TlsOptions};
use tokio_rustls::rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivatePkcs8KeyDer},
};

/// A certificate and its key.
struct Made {
    der: CertificateDer<'static>,
    pem: String,
    key: KeyPair,
}

/// Creates a certificate for these names and this common name, changed by `change`; signed by itself (`is_own`) or by
/// an unknown authority.
fn made(names: &[&str], common: &str, is_own: bool, change: fn(&mut CertificateParams)) -> Made {
    let names: Vec<String> = names.iter().map(|n| n.to_string()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name.push(DnType::CommonName, common);
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    let certificate = match is_own {
        true => params.self_signed(&key).unwrap(),
        false => {
            let mut unknown = CertificateParams::new(Vec::new()).unwrap();
            unknown.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let issuer = KeyPair::generate().unwrap();
            let issuer = CertifiedIssuer::self_signed(unknown, issuer).unwrap();
            params.signed_by(&key, &issuer).unwrap()
        }
    };
    Made { der: certificate.der().clone(), pem: certificate.pem(), key }
}

fn authority(params: &mut CertificateParams) {
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
}

impl Made {
    fn server(&self) -> Arc<ServerConfig> {
        let key = PrivatePkcs8KeyDer::from(self.key.serialize_der());
        let config = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![self.der.clone()], key.into());
        Arc::new(config.unwrap())
    }
}

/// Fetches from a server that presents `shown`, while trusting `trusted`.
async fn fetch(shown: &Made, trusted: &Made, host: &str) -> Result<(), String> {
    let server = Server::start(Some(shown.server()), Site::File(file())).await;
    let dir = TempDir::new().unwrap();
    let pem = dir.path().join("trusted.pem");
    std::fs::write(&pem, &trusted.pem).unwrap();
    let version = HttpVersion::Http1;
    let options = TlsOptions { extra_roots: vec![pem] };
    let tls = Some(TlsClient::new(&options, version.protocols()).unwrap());
    let web = HttpSettings { tls, version, ..HttpSettings::default() };
    let url = format!("https://{host}:{}/file.bin", server.address.port());
    let request = request(&url, dir.path().join("file.bin"), vec![direct()], web);
    let trial = Trial { dir, request, events: Events::default() };
    trial.run().await.map(|_| ()).map_err(|e| e.to_string())
}

#[tokio::test]
async fn a_directly_trusted_certificate_proves_its_server() {
    let plain = |_: &mut CertificateParams| {};
    for (name, certificate, host) in [
        ("an authority's own", made(&["localhost"], "a", true, authority), "localhost"),
        ("by address", made(&["127.0.0.1"], "a", true, authority), "127.0.0.1"),
        ("no authority's", made(&["localhost"], "a", true, plain), "localhost"),
        ("of an unknown authority", made(&["localhost"], "a", false, plain), "localhost"),
        ("an unknown one's authority", made(&["localhost"], "a", false, authority), "localhost"),
        ("by its common name", made(&[], "localhost", true, plain), "localhost"),
        (
            "an authority's, by its common name",
            made(&[], "LocalHost", true, authority),
            "localhost",
        ),
        ("an address as common name", made(&[], "127.0.0.1", true, authority), "127.0.0.1"),
    ] {
        let fetched = fetch(&certificate, &certificate, host).await;
        assert_eq!(fetched, Ok(()), "{name}");
    }
}

#[tokio::test]
async fn validity_name_purpose_and_bytes_of_a_trusted_certificate_are_checked() {
    fn expired(params: &mut CertificateParams) {
        authority(params);
        params.not_after = date_time_ymd(2001, 1, 1);
    }
    fn expired_leaf(params: &mut CertificateParams) {
        params.not_after = date_time_ymd(2001, 1, 1);
    }
    fn future(params: &mut CertificateParams) {
        authority(params);
        params.not_before = date_time_ymd(2900, 1, 1);
    }
    fn for_clients(params: &mut CertificateParams) {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    }
    for (name, certificate, word) in [
        (
            "another name",
            made(&["other.example"], "localhost", true, authority),
            "not for that name",
        ),
        ("another common name", made(&[], "other.example", true, authority), "not for that name"),
        ("a name that contains it", made(&[], "localhost.example", true, authority), "not for"),
        ("expired", made(&["localhost"], "a", true, expired), "expired"),
        (
            "expired, of an unknown authority",
            made(&["localhost"], "a", false, expired_leaf),
            "expired",
        ),
        ("expired, by its common name", made(&[], "localhost", true, expired), "expired"),
        ("not valid yet", made(&["localhost"], "a", true, future), "valid from"),
        ("not for servers", made(&["localhost"], "a", false, for_clients), ""),
    ] {
        let refused = fetch(&certificate, &certificate, "localhost").await.expect_err(name);
        assert!(refused.contains(word), "{name}: {refused}");
    }
    let shown = made(&["localhost"], "a", true, authority);
    let alike = made(&["localhost"], "a", true, authority);
    let refused = fetch(&shown, &alike, "localhost").await.unwrap_err();
    assert!(refused.contains("does not trust"), "the same names, another key: {refused}");
    let issued = made(&["localhost"], "a", false, |_| {});
    let refused = fetch(&issued, &alike, "localhost").await.unwrap_err();
    assert!(refused.contains("--cacert"), "{refused}");
}
