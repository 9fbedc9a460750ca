//! Tests: which URLs are accepted and refused, and where redirects lead.

use super::*;
use proptest::prelude::*;

fn url(text: &str) -> HttpUrl {
    HttpUrl::parse(text).unwrap()
}

#[test]
fn a_url_provides_the_parts_of_a_request() {
    let u = url("http://www.example:8080/a/b?c=d#e");
    assert_eq!(u.destination().to_string(), "www.example:8080");
    assert_eq!((u.host_field(), u.target()), ("www.example:8080".into(), "/a/b?c=d".into()));
    let u = url("http://[::1]");
    assert_eq!((u.host_field(), u.target()), ("[::1]".into(), "/".into()));
    assert_eq!(u.destination().to_string(), "[::1]:80");
}

#[test]
fn https_has_its_own_default_port_and_origin() {
    let u = url("HTTPS://Www.Example/a");
    assert_eq!(
        (u.origin(), u.host_field()),
        ("https://www.example:443".into(), "Www.Example".into())
    );
    assert_eq!(url("https://a:80/").host_field(), "a:80");
    assert!(u.is_https() && u.same_origin(&url("https://www.example:443/b")));
    assert!(!u.same_origin(&url("http://www.example:443/b")));
}

#[test]
fn other_urls_are_refused_with_the_reason() {
    let error = |text: &str| HttpUrl::parse(text).unwrap_err();
    assert!(matches!(error("ftp://a/b"), UrlError::Scheme(_)));
    assert!(matches!(error("http://a b/c"), UrlError::Syntax(_)));
    assert!(matches!(error("file"), UrlError::Syntax(_)));
    assert!(matches!(error("http:///b"), UrlError::Host(_)));
    assert!(matches!(error("http:/b"), UrlError::Host(_)));
    assert!(matches!(error("http://a:0/b"), UrlError::Host(_)));
    assert!(matches!(error("http://a:99999/b"), UrlError::Host(_)));
    for text in ["a/b", "www.example", "localhost:8080/b", "10.0.0.1:81/b"] {
        let shown = error(text).to_string();
        assert!(shown.contains(&format!("`https://{text}`")), "{shown}");
    }
}

#[test]
fn a_password_in_a_url_is_sent_to_its_origin_and_not_shown() {
    let u = url("https://me:s%2Fcret@a:81/b#c");
    assert_eq!((u.to_string(), u.host_field()), ("https://a:81/b".into(), "a:81".into()));
    assert_eq!(u.authorization(), Some(&basic(b"me", b"s/cret")));
    assert_eq!(u.join("/d").unwrap().authorization(), u.authorization());
    assert_eq!(u.join("https://b/d").unwrap().authorization(), None);
    let named = u.join("https://x:y@b/d").unwrap();
    assert_eq!(
        (named.to_string(), named.authorization()),
        ("https://b/d".into(), Some(&basic(b"x", b"y")))
    );
    assert_eq!(named.join("https://a:81/b").unwrap().authorization(), None);
    assert!(!format!("{u:?}").contains("cret"));
    for text in [
        "https://me:secret@a b/",
        "me:secret@a/b",
        "https://me:sec/ret@a/",
        "ftp://me:secret@a/",
        "https://me:secret@a:0/",
        "me:secret@a.example",
        "https://me:secret@",
    ] {
        let error = HttpUrl::parse(text).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("sec"), "{error:?}");
    }
}

#[test]
fn a_url_too_long_for_a_request_is_refused() {
    let long = |n: usize| format!("http://a/{}", "b".repeat(n - 1));
    assert!(HttpUrl::parse(&long(MAX_TARGET)).is_ok());
    assert_eq!(HttpUrl::parse(&long(MAX_TARGET + 1)), Err(UrlError::TooLong(MAX_TARGET + 1)));
    assert!(matches!(url("http://b/").join(long(70_000)), Err(UrlError::TooLong(70_000))));
}

#[test]
fn redirects_are_resolved_against_the_url() {
    let base = url("http://a/b/c?d");
    for (location, to) in [
        ("/x", "http://a/x"),
        ("x", "http://a/b/x"),
        ("../x", "http://a/x"),
        ("?y", "http://a/b/c?y"),
        ("//h:81/x", "http://h:81/x"),
        ("http://h/x#f", "http://h/x"),
        ("http:/h/x", "http://h/x"),
        ("HTTPS:///h/x", "HTTPS://h/x"),
    ] {
        assert_eq!(base.join(location).unwrap().to_string(), to, "{location}");
    }
}

#[test]
fn dot_segments_are_resolved() {
    for (text, to) in [
        ("http://a/b/../c/./d?x=/../y", "http://a/c/d?x=/../y"),
        ("http://a/../../x", "http://a/x"),
        ("http://a/b/..", "http://a/"),
        ("http://a/.well-known/x..", "http://a/.well-known/x.."),
        ("http://a?x=/../y", "http://a?x=/../y"),
    ] {
        assert_eq!(url(text).to_string(), to);
    }
    let url = url("http://u:p@a/b/../c#f");
    assert!(url.to_string() == "http://a/c" && url.authorization().is_some());
}

#[test]
fn texts_that_are_nearly_urls_are_repaired() {
    let base = url("http://a/b/c");
    for (text, to) in [
        ("http://a/b c", "http://a/b%20c"),
        ("http://a/caf\u{e9}?x=[1]", "http://a/caf%C3%A9?x=%5B1%5D"),
        ("http://b\u{fc}cher.example/x", "http://xn--bcher-kva.example/x"),
        ("http://B%C3%BCcher.example/x", "http://xn--bcher-kva.example/x"),
    ] {
        assert_eq!(url(text).to_string(), to);
        assert_eq!(base.join(text).unwrap().to_string(), to);
    }
    assert_eq!(url("http://b\u{fc}cher.example:81/").host_field(), "xn--bcher-kva.example:81");
    assert_eq!(base.join(b"caf\xe9 1%.bin").unwrap().to_string(), "http://a/b/caf%E9%201%25.bin");
    assert!(base.join("a:b").is_err(), "it names a scheme");
    assert_eq!(base.join("a b:c").unwrap().to_string(), "http://a/b/a%20b:c");
    assert!(HttpUrl::parse("http://a\u{ff0f}b/").is_err(), "a slash in a name");
}

#[test]
fn redirects_leave_https_only_if_the_user_gave_http() {
    let up = url("http://a/").join("https://a/x").unwrap();
    assert_eq!(up.join("http://b/x").unwrap().to_string(), "http://b/x");
    let error = url("https://a/").join("https://b/").unwrap().join("http://b/x").unwrap_err();
    assert_eq!(error, UrlError::Downgrade("http://b/x".into()));
}

#[test]
fn redirects_do_not_lead_into_the_private_network() {
    let into = |from: &str, to: &str| url(from).join(to).map(|_| ());
    for (from, to) in [
        ("http://8.8.8.8/", "http://127.0.0.1/x"),
        ("http://8.8.8.8/", "http://[::ffff:10.0.0.1]/x"),
        ("http://10.0.0.1/", "http://169.254.169.254/x"),
    ] {
        assert!(matches!(into(from, to), Err(UrlError::Inward(_))), "{from} {to}");
    }
    assert_eq!(into("http://10.0.0.1/", "http://10.0.0.2/x"), Ok(()));
    assert_eq!(into("http://127.0.0.1/", "http://8.8.8.8/x"), Ok(()));
    let twice = url("http://8.8.8.8/").join("http://9.9.9.9/").unwrap().join("http://[::1]/");
    assert!(matches!(twice, Err(UrlError::Inward(_))));
}

#[test]
fn file_names_stay_inside_their_directory() {
    for (text, name) in [
        ("http://a/b/c.iso?x=/y", "c.iso"),
        ("http://a/%2e%2e%2fetc%2fpasswd", "_._etc_passwd"),
        ("http://a/..%5Cx", "_._x"),
        ("http://a/.bashrc", "_bashrc"),
        ("http://a/-rf", "_rf"),
        ("http://a/a%00%0ab", "a__b"),
        ("http://a/%C3%A9", "é"),
        ("http://a/%FF", "_"),
        ("http://a/100%25%zz", "100%%zz"),
    ] {
        let Ok(u) = HttpUrl::parse(text) else { continue };
        assert_eq!(u.file_name().unwrap(), name, "{text}");
    }
    assert!(matches!(url("http://a/").file_name(), Err(UrlError::NoName(_))));
    assert!(matches!(url("http://a/b/%20").file_name(), Err(UrlError::NoName(_))));
}

proptest! {
    #[test]
    fn no_segment_gives_an_unsafe_name(segment in "([a-z.~-]|%[0-9A-F]{2}){0,120}") {
        let Ok(u) = HttpUrl::parse(&format!("http://a/{segment}")) else { return Ok(()) };
        let Ok(name) = u.file_name() else { return Ok(()) };
        prop_assert!(!name.contains(['/', '\0', '\n']) && !name.starts_with(['.', '-']));
        prop_assert!((1..=file_name::MAX).contains(&name.len()));
    }
}
