//! Header fields and logins.

use super::*;
use std::{fs, os::unix::fs::PermissionsExt};
use tempfile::TempDir;

fn field(server: &Server, name: &str) -> Vec<Option<String>> {
    let value = |ask: &server::Ask| Some(ask.fields.get(name)?.to_str().unwrap().to_owned());
    server.asks().iter().map(value).collect()
}

/// The example of RFC 7617 §2.
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

/// As with curl, which also takes the password of the URL's user from the file.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_netrc_sends_no_login_and_a_netrc_completes_the_user_of_the_url() {
    let server = Server::honest(&Version::new(1, 1000)).await;
    let dir = TempDir::new().unwrap();
    let output = run(dir.path(), &[&server.url(), "-n", "--digest"]).await;
    assert_done(&output);
    assert!(text(&output.stderr).contains("no ~/.netrc"), "{}", text(&output.stderr));
    assert!(field(&server, "authorization").iter().all(Option::is_none));
    let text_of = "machine 127.0.0.1 login other password x\n\
                   machine 127.0.0.1 login Aladdin password \"open sesame\"\n";
    fs::write(dir.path().join("netrc"), text_of).unwrap();
    let url = server.url().replace("http://", "http://Aladdin@");
    let before = server.asks().len();
    assert_done(&run(dir.path(), &[&url, "--netrc-file", "netrc", "-o", "other"]).await);
    let seen = field(&server, "authorization").split_off(before);
    assert!(!seen.is_empty() && seen.iter().all(|v| v.as_deref() == Some(ALADDIN)), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_named_by_a_fetched_metalink_get_no_secrets_of_another_origin() {
    let own = Server::honest(&Version::new(1, 1000)).await;
    let other = Server::honest(&Version::new(1, 1000)).await;
    let file = |name: &str, url: String| format!("<file name='{name}'><url>{url}</url></file>");
    let files = file("a", url(&own, "a")) + &file("b", url(&other, "b"));
    let document =
        format!("<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">{files}</metalink>");
    let bytes = document.into_bytes();
    let served = bytes.clone();
    let server = Server::start(&Version::new(1, 1000), move |ask, reply| {
        if ask.path.ends_with("x.meta4") {
            reply.whole(served.clone().into());
        }
    })
    .await;
    let secrets = ["-A", "test/1", "-H", "X-Token: hidden", "-u", "Aladdin:open sesame"];
    let dir = TempDir::new().unwrap();
    let link = url(&server, "x.meta4");
    assert_done(&run(dir.path(), &[&[&*link], &secrets[..]].concat()).await);
    for (server, is_own) in [(&server, true), (&own, false), (&other, false)] {
        for (name, value) in [("authorization", ALADDIN), ("x-token", "hidden")] {
            let seen = field(server, name);
            let expected = is_own.then(|| value.to_owned());
            assert!(!seen.is_empty() && seen.iter().all(|v| *v == expected), "{name}: {seen:?}");
        }
        assert!(field(server, "user-agent").iter().all(|v| v.as_deref() == Some("test/1")));
    }
    // The host's login in the netrc file would be sent over plain http, where others can read it.
    fs::write(dir.path().join("netrc"), "machine 127.0.0.1 login Aladdin password \"open sesame\"")
        .unwrap();
    let output = run(dir.path(), &[&link, "--netrc-file", "netrc", "-P", "by-netrc"]).await;
    assert_done(&output);
    let said = text(&output.stderr);
    assert!(
        said.contains("no login is sent to http://127.0.0.1") && said.contains("and 1 more"),
        "{said}"
    );
    assert!([&own, &other].iter().all(|s| field(s, "authorization").iter().all(Option::is_none)));
    assert_eq!(field(&server, "authorization").last().unwrap().as_deref(), Some(ALADDIN));
    // The servers in a local Metalink file are trusted.
    fs::write(dir.path().join("y.meta4"), bytes).unwrap();
    assert_done(&run(dir.path(), &[&["y.meta4", "-P", "in"], &secrets[..]].concat()).await);
    assert!(field(&other, "x-token").iter().any(|v| v.as_deref() == Some("hidden")));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_header_is_named_without_its_value() {
    let dir = TempDir::new().unwrap();
    for (header, name) in [
        ("Authorization: Bearer hidden\u{1b}[31m", "`Authorization`"),
        ("Author\u{1b}ization: Bearer hidden", "`Author\\u{1b}ization`"),
        ("Bearer hidden", "`?`"),
        ("Range: hidden", "`Range`"),
    ] {
        let output = run(dir.path(), &["http://127.0.0.1:9/a", "-H", header]).await;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(name) && !said.contains("hidden"), "{said}");
        assert!(!said.contains('\u{1b}'), "{said:?}");
    }
}
