//! A certificate authority for tests, and the servers' certificates that it issues.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use std::{path::PathBuf, sync::Arc};
use tempfile::TempDir;
use tokio_rustls::rustls::{ServerConfig, crypto::aws_lc_rs, pki_types::PrivatePkcs8KeyDer};

pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: TempDir,
}

impl Authority {
    pub fn new() -> Self {
        Self::called("tests")
    }

    pub fn called(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let dir = TempDir::new().unwrap();
        std::fs::write(dir.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, dir }
    }

    /// The file with its certificate, for `--cacert`.
    pub fn file(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// The TLS configuration of a server for `names` (or addresses).
    pub fn server(&self, names: &[&str], protocols: &[&str]) -> Arc<ServerConfig> {
        self.server_until(2100, names, protocols)
    }

    /// The same, with a certificate that is valid until the first day of `year`.
    pub fn server_until(&self, year: i32, names: &[&str], protocols: &[&str]) -> Arc<ServerConfig> {
        let names: Vec<String> = names.iter().map(|n| n.to_string()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let mut config = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key.into())
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|p| p.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}
