//! Metalinks from files and URLs, including hostile ones.

use super::*;
use sha2::{Digest, Sha256};
use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering},
};
use tempfile::TempDir;

fn metalink(files: &str) -> String {
    format!("<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">{files}</metalink>")
}

/// A file with these URLs.
fn file(name: &str, hash: &str, urls: &[String]) -> String {
    let urls: String = urls.iter().map(|url| format!("<url>{url}</url>")).collect();
    format!("<file name='{name}'>{hash}{urls}</file>")
}

fn sha256(version: &Version) -> String {
    format!("<hash type='sha-256'>{:x}</hash>", Sha256::digest(&version.bytes))
}

#[tokio::test(flavor = "multi_thread")]
async fn names_and_hashes_are_used_and_no_name_leads_outside_the_directory() {
    let version = Version::new(1, LENGTH);
    let server = Server::honest(&version).await;
    let dir = TempDir::new().unwrap();
    let good = file("a/b.iso", &sha256(&version), &[url(&server, "1"), url(&server, "2")]);
    let evil = file("../../../evil", "<hash type='md5'>00</hash>", &[url(&server, "3")]);
    fs::write(dir.path().join("x.meta4"), metalink(&(good + &evil))).unwrap();
    let output = run(dir.path(), &["x.meta4", "-P", "in"]).await;
    assert_done(&output);
    assert_eq!(names(dir.path()), ["in", "x.meta4"]);
    assert_eq!(names(&dir.path().join("in")), ["a", "evil"]);
    assert!(fs::read(dir.path().join("in/a/b.iso")).unwrap() == version.bytes);
    let said = text(&output.stderr);
    assert!(said.contains("its hashes (md5) are ignored"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_hash_and_an_unusable_document_are_reported() {
    let server = Server::honest(&Version::new(1, LENGTH)).await;
    let dir = TempDir::new().unwrap();
    let wrong = file("b.iso", &sha256(&Version::new(2, 5)), &[url(&server, "1")]);
    fs::write(dir.path().join("x.meta4"), metalink(&wrong)).unwrap();
    let output = run(dir.path(), &["--metalink", "x.meta4"]).await;
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    assert_eq!(names(dir.path()), ["x.meta4"]);
    for (document, word) in [
        ("<html>".to_owned(), "<metalink"),
        (metalink("<file name='x'/>"), "no http or https URL"),
        (format!("<!DOCTYPE x [<!ENTITY e 'x'>]>{}", metalink("")), "DOCTYPE"),
    ] {
        fs::write(dir.path().join("x.meta4"), document).unwrap();
        let output = run(dir.path(), &["x.meta4"]).await;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(word), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_metalink_at_a_url_is_fetched_but_not_stored() {
    let version = Version::new(1, LENGTH);
    let files = Server::honest(&version).await;
    let document = metalink(&file("b.iso", &sha256(&version), &[url(&files, "1")]));
    let documents = Version { bytes: document.into(), ..Version::new(1, 0) };
    let server = Server::honest(&documents).await;
    let dir = TempDir::new().unwrap();
    let output = run(dir.path(), &[&url(&server, "x.meta4?v=1")]).await;
    assert_done(&output);
    assert_eq!(names(dir.path()), ["b.iso"]);
    assert!(fs::read(dir.path().join("b.iso")).unwrap() == version.bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_allowed_only_for_a_metalink_with_one_file() {
    let server = Server::honest(&Version::new(1, LENGTH)).await;
    let dir = TempDir::new().unwrap();
    let one = file("a", "", &[url(&server, "1")]);
    fs::write(dir.path().join("one.meta4"), metalink(&one)).unwrap();
    let two = one.clone() + &file("b", "", &[url(&server, "2")]);
    fs::write(dir.path().join("two.meta4"), metalink(&two)).unwrap();
    let output = run(dir.path(), &["two.meta4", "-o", "x"]).await;
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("two.meta4 has 2"), "{}", text(&output.stderr));
    assert_done(&run(dir.path(), &["one.meta4", "-o", "x"]).await);
    assert_eq!(names(dir.path()), ["one.meta4", "two.meta4", "x"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_length_is_an_error_without_a_hash() {
    let version = Version::new(1, LENGTH);
    let bytes = version.bytes.clone();
    let ranged = Server::honest(&version).await;
    let whole = Server::start(&version, move |_, reply| {
        reply.whole(bytes.clone());
        reply.unset("content-length");
    })
    .await;
    let dir = TempDir::new().unwrap();
    for (server, size, code) in
        [(&ranged, LENGTH - 1, 5), (&whole, LENGTH + 1, 5), (&whole, LENGTH, 0)]
    {
        let size = format!("<size>{size}</size>");
        let document = metalink(&file("b.iso", &size, &[url(server, "1")]));
        fs::write(dir.path().join("x.meta4"), document).unwrap();
        let output = run(dir.path(), &["x.meta4"]).await;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        if code != 0 {
            assert!(said.contains(&format!("but has {LENGTH}")), "{said}");
            assert_eq!(names(dir.path()), ["x.meta4"]);
        }
    }
}

/// As with aria2: one bad server among several fails nothing.
#[tokio::test(flavor = "multi_thread")]
async fn faulty_sources_are_replaced_by_others() {
    type Spoil = fn(&mut server::Reply);
    let version = Version::new(1, LENGTH);
    let good = Server::honest(&version).await;
    let size = format!("<size>{LENGTH}</size>");
    let sha512 = format!("<hash type='sha-512'>{:x}</hash>", sha2::Sha512::digest(&version.bytes));
    let rows: [(&str, Spoil); 7] = [
        ("honest", |_| {}),
        ("404", |reply| reply.status(404)),
        ("403", |reply| reply.status(403)),
        ("503", |reply| reply.status(503)),
        ("another length", |reply| reply.whole(vec![7; 5000].into())),
        ("a page", |reply| {
            reply.whole("<html>log in</html>".into());
            reply.set("content-type", "text/html");
        }),
        ("breaks off", |reply| {
            reply.whole(vec![7; LENGTH].into());
            reply.after_bytes(5000, Step::Cut);
        }),
    ];
    for (name, spoil) in rows {
        let bad = Server::start(&version, move |ask, reply| {
            assert!(ask.fields.contains_key("x-secret") || ask.path != "/dir/1");
            spoil(reply);
        })
        .await;
        let urls = [url(&bad, "1"), url(&bad, "2"), url(&good, "3")];
        for proof in [&size, &sha256(&version), &sha512] {
            let dir = TempDir::new().unwrap();
            fs::write(dir.path().join("x.meta4"), metalink(&file("b.iso", proof, &urls))).unwrap();
            let output = run(dir.path(), &["x.meta4", "-H", "X-Secret: 1"]).await;
            assert!(output.status.success(), "{name}, {proof}: {}", text(&output.stderr));
            assert!(fs::read(dir.path().join("b.iso")).unwrap() == version.bytes, "{name}");
        }
    }
    assert!(good.asks().iter().all(|ask| !ask.fields.contains_key("x-secret")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_uses_another_source_only_if_nothing_was_written() {
    let version = Version::new(1, LENGTH);
    let good = Server::honest(&version).await;
    for proof in ["".to_owned(), sha256(&version)] {
        // The server sends the first bytes and no others.
        let is_first = AtomicBool::new(true);
        let bad =
            Server::start(&version, move |_, reply| match is_first.swap(false, Ordering::SeqCst) {
                true => reply.after_bytes(server::HEAD as usize, Step::Cut),
                false => reply.status(404),
            })
            .await;
        let urls = [url(&bad, "1"), url(&good, "2")];
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("x.meta4"), metalink(&file("b.iso", &proof, &urls))).unwrap();
        let output = run(dir.path(), &["x.meta4", "-o", "-", "--retry", "0"]).await;
        let said = text(&output.stderr);
        if proof.is_empty() {
            assert_eq!(output.status.code(), Some(3), "{said}");
            assert!(said.contains("part of the file is in the output already"), "{said}");
            // The thread that writes the pipe may lag behind when the download ends.
            assert!(output.stdout.len() as u64 <= server::HEAD);
            assert!(version.bytes.starts_with(&output.stdout));
        } else {
            assert!(output.status.success(), "{said}");
            assert!(output.stdout == version.bytes);
        }
    }
}

/// The weak hashes that a Metalink can give for `bytes`, of the whole or of pieces.
fn proofs(bytes: &[u8]) -> Vec<String> {
    const PIECE: usize = 700_000;
    let sha1 = |bytes: &[u8]| -> String {
        use sha1::Digest as _;
        sha1::Sha1::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let md5 = |bytes: &[u8]| format!("{:x}", md5::Md5::digest(bytes));
    let pieces = |kind: &str, hash: &dyn Fn(&[u8]) -> String| {
        let hashes: String =
            bytes.chunks(PIECE).map(|piece| format!("<hash>{}</hash>", hash(piece))).collect();
        format!("<pieces type='{kind}' length='{PIECE}'>{hashes}</pieces>")
    };
    vec![
        format!("<hash type='sha-1'>{}</hash>", sha1(bytes)),
        format!("<hash type='md5'>{}</hash>", md5(bytes)),
        pieces("sha-1", &sha1),
        pieces("md5", &md5),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn weak_hashes_and_piece_hashes_are_verified() {
    let version = Version::new(1, LENGTH);
    let mut other = version.clone();
    let mut bytes = version.bytes.to_vec();
    bytes[LENGTH - 1] ^= 1;
    other.bytes = bytes.into();
    let (good, bad) = (Server::honest(&version).await, Server::honest(&other).await);
    let (good, bad) = (url(&good, "g"), url(&bad, "b"));
    for (n, proof) in proofs(&version.bytes).into_iter().enumerate() {
        for (urls, code) in
            [(vec![&good], 0), (vec![&bad], 5), (vec![&bad, &good], 0), (vec![&good, &bad], 0)]
        {
            let dir = TempDir::new().unwrap();
            let urls: Vec<String> = urls.into_iter().cloned().collect();
            fs::write(dir.path().join("x.meta4"), metalink(&file("b.iso", &proof, &urls))).unwrap();
            let output = run(dir.path(), &["x.meta4"]).await;
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{proof}: {said}");
            assert!(code == 0 || n < 2 || said.contains("piece 5"), "{said}");
            assert_eq!(dir.path().join("b.iso").exists(), code == 0);
            let streamed = run(dir.path(), &["x.meta4", "-o", "-"]).await;
            assert_eq!(streamed.status.code(), Some(code), "{}", text(&streamed.stderr));
            let shown = if code == 0 { &version.bytes[..] } else { &[] };
            assert!(streamed.stdout == shown, "what does not match is not shown");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_strongest_hash_decides() {
    let version = Version::new(1, LENGTH);
    let server = Server::honest(&version).await;
    let wrong = proofs(b"something else").concat();
    let sha1 = proofs(&version.bytes).remove(0);
    for (proof, code) in [
        (sha256(&version) + &wrong, 0),
        (sha1.clone() + &proofs(b"something else")[1..].concat(), 0),
        (sha256(&Version::new(2, 5)) + &sha1, 5),
    ] {
        let dir = TempDir::new().unwrap();
        let document = metalink(&file("b.iso", &proof, &[url(&server, "1")]));
        fs::write(dir.path().join("x.meta4"), document).unwrap();
        let output = run(dir.path(), &["x.meta4"]).await;
        assert_eq!(output.status.code(), Some(code), "{proof}: {}", text(&output.stderr));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_with_another_version_is_detected_by_the_hash() {
    let version = Version::new(1, LENGTH);
    let (good, bad) =
        (Server::honest(&version).await, Server::honest(&Version::new(2, LENGTH)).await);
    let (good, bad) = (url(&good, "g"), url(&bad, "b"));
    let hash = sha256(&version);
    for urls in [[&bad, &good], [&good, &bad]] {
        let dir = TempDir::new().unwrap();
        let document = metalink(&file("b.iso", &hash, &urls.map(String::clone)));
        fs::write(dir.path().join("x.meta4"), document).unwrap();
        assert_done(&run(dir.path(), &["x.meta4"]).await);
        assert!(fs::read(dir.path().join("b.iso")).unwrap() == version.bytes);
        assert_eq!(names(dir.path()), ["b.iso", "x.meta4"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn surplus_sources_are_tried_in_turn() {
    let version = Version::new(1, LENGTH);
    let bad = Server::start(&version, |_, reply| reply.status(404)).await;
    let good = Server::honest(&version).await;
    let mut urls: Vec<String> = (0..20).map(|i| url(&bad, &i.to_string())).collect();
    urls.push(url(&good, "g"));
    for proof in ["", &sha256(&version)] {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("x.meta4"), metalink(&file("b.iso", proof, &urls))).unwrap();
        assert_done(&run(dir.path(), &["x.meta4"]).await);
        assert!(fs::read(dir.path().join("b.iso")).unwrap() == version.bytes);
    }
    urls.pop();
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("x.meta4"), metalink(&file("b.iso", "", &urls))).unwrap();
    assert_eq!(run(dir.path(), &["x.meta4"]).await.status.code(), Some(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn version_3_and_relative_urls_are_read() {
    let version = Version::new(1, LENGTH);
    let files = Server::honest(&version).await;
    let old = format!(
        "<metalink version='3.0' xmlns='http://www.metalinker.org/'><files><file name='b.iso'>\
         <verification><hash type='sha256'>{:x}</hash></verification><resources>\
         <url type='http' preference='1'>{}</url></resources></file></files></metalink>",
        Sha256::digest(&version.bytes),
        url(&files, "1"),
    );
    let document: bytes::Bytes =
        metalink(&file("b.iso", &sha256(&version), &["../dir/2".to_owned()])).into();
    let server = Server::start(&version, move |ask, reply| {
        if ask.path.ends_with(".meta4") {
            reply.whole(document.clone());
        }
    })
    .await;
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("x.metalink"), old).unwrap();
    for argument in ["x.metalink", &url(&server, "x.meta4")] {
        let output = run(dir.path(), &["-P", "in", argument]).await;
        assert!(output.status.success(), "{argument}: {}", text(&output.stderr));
        assert!(fs::read(dir.path().join("in/b.iso")).unwrap() == version.bytes);
        fs::remove_file(dir.path().join("in/b.iso")).unwrap();
    }
    assert!(server.asks().iter().any(|ask| ask.path == "/dir/2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_may_contain_iris_and_be_utf_16() {
    let version = Version::new(1, LENGTH);
    let server = Server::honest(&version).await;
    let text = metalink(&file("b.iso", &sha256(&version), &[url(&server, "caf\u{e9} 1.iso")]));
    let wide: Vec<u8> =
        format!("\u{feff}{text}").encode_utf16().flat_map(u16::to_le_bytes).collect();
    for document in [text.into_bytes(), wide] {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("x.meta4"), document).unwrap();
        assert_done(&run(dir.path(), &["x.meta4"]).await);
        assert!(fs::read(dir.path().join("b.iso")).unwrap() == version.bytes);
    }
    assert!(server.asks().iter().all(|a| a.path == "/dir/caf%C3%A9%201.iso"));
}
