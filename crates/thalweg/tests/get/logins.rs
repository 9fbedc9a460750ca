//! Fields and credentials.

use super::*;
use std::{fs, os::unix::fs::PermissionsExt};
use tempfile::TempDir;

fn field(server: &Server, name: &str) -> Vec<Option<String>> {
    let value = |ask: &server::Ask| Some(ask.fields.get(name)?.to_str().unwrap().to_owned());
    server.asks().iter().map(value).collect()
}

/// RFC 7617 §2's example.
const ALADDIN: &str = "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==";

#[tokio::test(flavor = "multi_thread")]
async fn fields_reach_the_server() {
    let server = Server::honest(&Version::new(1, 1000)).await;
    let dir = TempDir::new().unwrap();
    let url = server.url();
    let args =
        [&url, "-A", "test/1", "-H", "X-One: 1", "-H", "X-Two: 2", "-u", "Aladdin:open sesame"];
    assert_done(&run(dir.path(), &args).await);
    for (name, value) in
        [("user-agent", "test/1"), ("x-one", "1"), ("x-two", "2"), ("authorization", ALADDIN)]
    {
        let seen = field(&server, name);
        assert!(!seen.is_empty());
        assert!(seen.iter().all(|v| v.as_deref() == Some(value)), "{name}: {seen:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_netrc_logs_in_and_warns_if_others_can_read_it() {
    let server = Server::honest(&Version::new(1, 1000)).await;
    let dir = TempDir::new().unwrap();
    let netrc = dir.path().join("netrc");
    let text_of = "machine 127.0.0.1 login Aladdin password \"open sesame\"\n";
    fs::write(&netrc, text_of).unwrap();
    fs::set_permissions(&netrc, fs::Permissions::from_mode(0o644)).unwrap();
    let url = server.url();
    let output = run(dir.path(), &[&url, "--netrc-file", "netrc"]).await;
    assert_done(&output);
    assert!(text(&output.stderr).contains("chmod 600 netrc"), "{}", text(&output.stderr));
    fs::set_permissions(&netrc, fs::Permissions::from_mode(0o600)).unwrap();
    let output = run(dir.path(), &[&url, "--netrc-file", "netrc"]).await;
    let said = text(&output.stderr);
    assert!(!said.contains("chmod") && !said.contains("sesame"), "{said}");
    let seen = field(&server, "authorization");
    assert!(seen.len() >= 2 && seen.iter().all(|v| v.as_deref() == Some(ALADDIN)), "{seen:?}");
}
