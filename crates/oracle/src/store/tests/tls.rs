//! Connections to a server: TLS as the URL requires it, and the password.

use crate::store::{Database, Server, Store, StoreError, postgres};
use postgres::Cluster;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::{net::TcpListener, path::PathBuf, time::Duration};

const PASSWORD: &str = "hu%73h: ü/@#?";

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A server with a certificate for `localhost` that accepts only TLS with a password.
struct Sealed {
    cluster: Cluster,
    port: u16,
    authority: PathBuf,
    stranger: PathBuf,
}

impl Sealed {
    async fn start() -> Self {
        let (ours, other) = (authority(), authority());
        let (mut files, mut port) = (None, 0);
        let cluster = Cluster::start_with(|cluster| {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            let certificate = cluster.put("crt", &params.signed_by(&key, &ours).unwrap().pem());
            let key = cluster.put("key", &key.serialize_pem());
            let rules = "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n";
            let rules = cluster.put("hba", rules);
            files = Some([cluster.put("ca", &ours.pem()), cluster.put("other", &other.pem())]);
            // Free now; it is unlikely that another process takes it within a moment.
            port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let (certificate, key) = (certificate.display(), key.display());
            format!(
                "-c listen_addresses=127.0.0.1 -c port={port} -c ssl=on -c ssl_cert_file={certificate} \
                 -c ssl_key_file={key} -c hba_file={}",
                rules.display()
            )
        });
        let [authority, stranger] = files.unwrap();
        let sealed = Self { cluster: cluster.unwrap(), port, authority, stranger };
        let inside = format!("{}?port={port}", sealed.cluster.url());
        let mut admin = postgres::connect(&inside).await;
        let text = format!("ALTER USER thalweg PASSWORD '{PASSWORD}'");
        sqlx::query(sqlx::AssertSqlSafe(text)).execute(&mut admin).await.unwrap();
        sealed
    }

    async fn open(&self, host: &str, tail: &str, password: &str) -> Result<Store, StoreError> {
        let url = format!("postgres://thalweg@{host}:{}/postgres?{tail}", self.port);
        let server = Database::Server(Server::new(&url, Some(password)).unwrap());
        let store = Store::at(&server, "".as_ref(), Duration::from_secs(20)).unwrap();
        store.ready().await.map(|()| store)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_follows_the_url_and_the_password_is_checked() {
    if postgres::shared().is_none() {
        return;
    }
    let sealed = Sealed::start().await;
    let full = |file: &PathBuf| format!("sslmode=verify-full&sslrootcert={}", file.display());
    let right = full(&sealed.authority);
    let store = sealed.open("localhost", &right, PASSWORD).await.unwrap();
    let mut session = store.session().await.unwrap();
    let by_tls = "SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let by_tls: String = sqlx::query_scalar(by_tls).fetch_one(session.start()).await.unwrap();
    assert_eq!(by_tls, "TLSv1.3");
    // Another authority, another name, and no authority that browsers trust.
    for (host, tail) in [
        ("localhost", full(&sealed.stranger)),
        ("127.0.0.1", right.clone()),
        ("localhost", "sslmode=verify-full".to_owned()),
    ] {
        let error = sealed.open(host, &tail, PASSWORD).await.err().unwrap();
        assert!(matches!(error, StoreError::Unreachable { .. }), "{host} {tail}: {error}");
        assert!(error.to_string().contains("ertificate"), "{error}");
    }
    // Without TLS, and with a wrong password.
    for (tail, password) in [("sslmode=disable", PASSWORD), (&*right, "wrong-and-hush")] {
        let error = sealed.open("localhost", tail, password).await.err().unwrap();
        let told = error.to_string();
        assert!(matches!(error, StoreError::Denied { .. }), "{tail}: {told}");
        assert!(!told.contains("hush") && !told.contains(PASSWORD), "{told}");
    }
}
