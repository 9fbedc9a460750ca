//! The trusted certificate authorities.

use super::TlsError;
use rustls::{
    RootCertStore,
    pki_types::{
        CertificateDer, TrustAnchor,
        pem::{self, PemObject},
    },
};
use std::{
    env, io,
    path::{Path, PathBuf},
};

/// The certificates that prove servers' names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// PEM files of certificates that are trusted in addition to the system's: an authority's, or a server's own.
    pub extra_roots: Vec<PathBuf>,
}

/// The user's own authorities, to which the system's are added later.
pub(super) struct Roots {
    store: RootCertStore,
    exact: Vec<CertificateDer<'static>>,
}

impl Roots {
    pub(super) fn with(files: &[PathBuf]) -> Result<Self, TlsError> {
        let (mut store, mut exact) = (RootCertStore::empty(), Vec::new());
        for path in files {
            let failed = |source| TlsError::Roots { path: path.clone(), source };
            for certificate in read(path).map_err(failed)? {
                exact.push(certificate.clone());
                store.add(certificate).map_err(|e| {
                    failed(invalid(format!(
                        "it contains an unusable \
                    certificate: {e}"
                    )))
                })?;
            }
        }
        Ok(Self { store, exact })
    }

    /// The user's certificates, unchanged.
    pub(super) fn exact(&self) -> &[CertificateDer<'static>] {
        &self.exact
    }

    /// The user's authorities and the system's, which `SSL_CERT_FILE` and `SSL_CERT_DIR` replace. If the system has
    /// none, Mozilla's as of this program's release are used.
    pub(super) fn with_the_systems(&self) -> Result<RootCertStore, TlsError> {
        let mut store = self.store.clone();
        let found = rustls_native_certs::load_native_certs();
        // Systems also contain authorities that are too old for rustls.
        let (added, _) = store.add_parsable_certificates(found.certs);
        if added > 0 {
            return Ok(store);
        }
        // A user who names a file wants its authorities; another list instead would be a surprise.
        if let Some(path) = env::var_os("SSL_CERT_FILE").or_else(|| env::var_os("SSL_CERT_DIR")) {
            let why = found.errors.into_iter().next().map(|e| e.to_string());
            let source = invalid(why.unwrap_or_else(|| "it contains no certificate".to_owned()));
            return Err(TlsError::Roots { path: path.into(), source });
        }
        store.roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().map(TrustAnchor::to_owned));
        Ok(store)
    }
}

/// The certificates in a PEM file, at least one.
fn read(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let text = std::fs::read(path)?;
    let all: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&text).collect();
    let all = all.map_err(|e| invalid(format!("it is not PEM: {e}")))?;
    if all.is_empty() {
        let why = "it contains no certificate in PEM (`-----BEGIN CERTIFICATE-----`)";
        return Err(invalid(why.to_owned()));
    }
    Ok(all)
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(path: &Path) -> String {
        Roots::with(&[path.to_owned()]).err().expect("must be refused").to_string()
    }

    #[test]
    fn files_without_certificates_are_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.pem");
        let text = message(&path);
        assert!(text.contains("ca.pem") && text.contains("No such file"), "{text}");
        for (content, word) in [
            ("", "no certificate"),
            ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "no certificate"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n", "not PEM"),
            (
                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                "unusable certificate",
            ),
        ] {
            std::fs::write(&path, content).unwrap();
            let text = message(&path);
            assert!(text.contains("ca.pem") && text.contains(word), "{content}: {text}");
        }
    }

    #[test]
    fn the_users_roots_are_added_to_the_systems() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.pem");
        let made = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
        std::fs::write(&path, made.cert.pem().repeat(2)).unwrap();
        let roots = Roots::with(&[path]).unwrap();
        assert_eq!(roots.store.len(), 2);
        assert!(roots.with_the_systems().unwrap().len() > 2);
    }
}
