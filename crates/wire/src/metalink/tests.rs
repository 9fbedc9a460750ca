//! Valid and invalid documents, and names that would leave the target directory.

use super::*;
use proptest::prelude::*;

/// RFC 5854 §1.1's example, with a hash of the right length.
const EXAMPLE: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<metalink xmlns="urn:ietf:params:xml:ns:metalink">
  <published>2009-05-15T12:23:23Z</published>
  <file name="example.ext">
    <size>14471447</size>
    <identity>Example</identity>
    <hash type="sha-1">3d6fece8033d146d8611eab4f032df738c8c1283</hash>
    <hash type="sha-256">f0ad929cd259957e160ea442eb80986b5f01abcd0123456789abcdef01234567</hash>
    <pieces length="1048576" type="sha-256"><hash>aa</hash></pieces>
    <url location="de" priority="2">ftp://ftp.example.com/example.ext</url>
    <url location="fr" priority="2">http://b.example/example.ext?a&amp;b</url>
    <url priority="1"><![CDATA[https://a.example/example.ext]]></url>
    <url>http://last.example/example.ext</url>
    <metaurl mediatype="torrent" priority="2">http://example.com/example.ext.torrent</metaurl>
  </file>
</metalink>"#;

fn document(inside: &str) -> String {
    format!("<metalink xmlns=\"{NAMESPACE}\">{inside}</metalink>")
}

fn error(text: &str) -> MetalinkError {
    parse(text.as_bytes()).unwrap_err()
}

#[test]
fn a_file_has_its_mirrors_in_order_and_its_hash() {
    let files = parse(EXAMPLE.as_bytes()).unwrap();
    let [file] = &files[..] else { panic!("{files:?}") };
    assert_eq!((file.name.as_str(), file.size), ("example.ext", Some(14_471_447)));
    assert_eq!(file.sha256.unwrap()[..2], [0xf0, 0xad]);
    assert_eq!(file.sha1.unwrap()[..2], [0x3d, 0x6f]);
    assert_eq!(file.other_hashes, ["sha-256 of pieces"], "`aa` is none");
    let wanted = [
        "https://a.example/example.ext",
        "http://b.example/example.ext?a&b",
        "http://last.example/example.ext",
    ];
    assert_eq!(file.urls, wanted);
    assert_eq!(file.skipped, 2, "ftp and torrent");
}

#[test]
fn a_prefix_is_as_good_as_a_default_namespace() {
    let text = format!(
        "<m:metalink xmlns:m=\"{NAMESPACE}\"><m:file name='a'><m:url>http://a/b</m:url>\
         <url>http://stranger/</url></m:file></m:metalink>"
    );
    assert_eq!(parse(text.as_bytes()).unwrap()[0].urls, ["http://a/b"]);
}

/// A document as mirror managers of Linux distributions send it.
#[test]
fn version_3_is_parsed() {
    let hash = "ab".repeat(32);
    let text = format!(
        "<?xml version='1.0' encoding='utf-8'?><metalink version='3.0' xmlns='{NAMESPACE_3}' type='dynamic' \
         xmlns:mm0='http://fedorahosted.org/mirrormanager'><file name='stray'/><files><file name='repomd.xml'>\
         <mm0:timestamp>1</mm0:timestamp><size>7</size><verification><hash type='md5'>00</hash>\
         <hash type='sha256'>{hash}</hash><hash type='sha512'>{hash}{hash}</hash><pieces length='4' type='sha1'>\
         <hash piece='0'>aa</hash></pieces></verification><hash type='sha256'>00</hash>\
         <resources maxconnections='1'><url>http://last/</url>\
         <url type='http' preference='9'>http://b/</url><url protocol='https' type='https' preference='100'>https://a/\
         </url><url type='rsync' preference='99'>rsync://c/</url>\
         <url type='bittorrent' preference='100'>http://a/x.torrent</url></resources></file></files></metalink>"
    );
    let files = parse(text.as_bytes()).unwrap();
    let [file] = &files[..] else { panic!("{files:?}") };
    assert_eq!((file.name.as_str(), file.size), ("repomd.xml", Some(7)));
    assert_eq!((file.sha256, file.sha512), (Some([0xab; 32]), Some([0xab; 64])));
    assert_eq!(file.other_hashes, ["md5", "sha1 of pieces"]);
    assert_eq!(file.urls, ["https://a/", "http://b/", "http://last/"]);
    assert_eq!(file.skipped, 2, "rsync and torrent");
}

#[test]
fn weak_hashes_and_piece_hashes_are_read() {
    let (sha, md5) = ("ab".repeat(20), "cd".repeat(16));
    let piece = |kind: &str, length: &str, hashes: &str| {
        format!("<pieces type='{kind}' length='{length}'>{hashes}</pieces>")
    };
    let two = format!("<hash>{sha}</hash><hash>{}</hash>", sha.to_uppercase());
    let file = |inside: &str| {
        let text = document(&format!("<file name='a'>{inside}<url>http://a/b</url></file>"));
        parse(text.as_bytes()).unwrap().remove(0)
    };
    let weak = file(&format!("<hash type='md5'>{md5}</hash><hash type='sha-1'>{sha}</hash>"));
    assert_eq!((weak.md5, weak.sha1), (Some([0xcd; 16]), Some([0xab; 20])));
    let both = piece("sha-1", "4", &two) + &piece("md5", "9", &format!("<hash>{md5}</hash>"));
    let found = file(&both).pieces.unwrap();
    assert_eq!((found.kind, found.length, found.hashes.len()), ("sha1", 4, 2), "the stronger ones");
    let old = two.replacen("<hash", "<hash piece='0'", 1).replace("<hash>", "<hash piece='1'>");
    assert_eq!(file(&piece("SHA1", "4", &old)).pieces, Some(found));
    for bad in [
        piece("sha-1", "0", &two),
        piece("sha-1", "", &two),
        piece("sha-3", "4", &two),
        piece("md5", "4", &two),
        piece("sha-1", "4", &old.replace("'1'", "'2'")),
        piece("sha-1", "4", &two.replace("ab", "xy")),
    ] {
        let file = file(&bad);
        assert_eq!((file.pieces, file.other_hashes.len()), (None, 1), "{bad}");
    }
    let differ =
        format!("<hash type='md5'>{md5}</hash><hash type='md5'>{}</hash>", "00".repeat(16));
    let differ = document(&format!("<file name='x'>{differ}</file>"));
    assert_eq!(error(&differ), MetalinkError::TwoHashes("x".into(), "md5"));
}

#[test]
fn a_document_type_without_declarations_is_ignored() {
    let text = document("<file name='a'><url>http://a/b</url></file>");
    for kind in ["<!DOCTYPE metalink>", "<!DOCTYPE metalink SYSTEM \"http://a/metalink.dtd\">"] {
        assert_eq!(parse(format!("{kind}{text}").as_bytes()).unwrap().len(), 1, "{kind}");
    }
    for inside in ["", "<!ENTITY e 'x'>", "<!ELEMENT metalink ANY>"] {
        assert_eq!(error(&format!("<!DOCTYPE metalink [{inside}]>{text}")), MetalinkError::DocType);
    }
    let entity = text.replace("http://a/b", "&e;");
    let entity = format!("<!DOCTYPE metalink SYSTEM 'http://a/e.dtd'>{entity}");
    assert_eq!(error(&entity), MetalinkError::Entity("e".into()));
}

#[test]
fn relative_urls_and_names_of_hashes_without_hyphen_are_accepted() {
    let hash = "0".repeat(64);
    for (url, is_kept) in [
        ("b.iso", true),
        ("../b.iso", true),
        ("/b.iso?a:b", true),
        ("//h/b.iso", true),
        ("magnet:?xt=urn:sha1:x", false),
        ("mailto:a", false),
        ("ftp://h/b.iso", false),
        ("", false),
    ] {
        let text =
            format!("<file name='a'><hash type='SHA256'>{hash}</hash><url>{url}</url></file>");
        let files = parse(document(&text).as_bytes()).unwrap();
        assert_eq!(files[0].urls.len(), usize::from(is_kept), "{url}");
        assert_eq!(files[0].sha256, Some([0; 32]));
    }
}

#[test]
fn a_document_declared_as_iso_8859_1_is_read() {
    let text = document("<file name='caf\u{e9}'><url>http://a/b</url></file>");
    let bytes = |declaration: &str| -> Vec<u8> {
        let text = format!("{declaration}{text}");
        text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect()
    };
    let files = parse(&bytes("<?xml version='1.0' encoding='ISO-8859-1'?>")).unwrap();
    assert_eq!(files[0].name, "caf\u{e9}");
    for declaration in ["", "<?xml version='1.0' encoding='KOI8-R'?>", "<a iso-8859-1>"] {
        assert_eq!(parse(&bytes(declaration)), Err(MetalinkError::Encoding), "{declaration}");
    }
}

#[test]
fn entities_and_documents_beyond_the_bounds_are_refused() {
    let bomb = format!(
        "<!DOCTYPE a [<!ENTITY x \"xxxx\"><!ENTITY y SYSTEM \"file:///etc/passwd\">]>{}",
        document("<file name=\"&y;\"/>")
    );
    assert_eq!(error(&bomb), MetalinkError::DocType);
    let text = document("<file name='a'><url>http://a/&secret;</url></file>");
    assert_eq!(error(&text), MetalinkError::Entity("secret".into()));
    assert!(matches!(error(&document("<file name='&y;'/>")), MetalinkError::Syntax { .. }));
    let many = "<file name='a'/>".repeat(MAX_FILES + 1);
    assert_eq!(error(&document(&many)), MetalinkError::TooManyFiles);
    let long = vec![b' '; MAX_BYTES + 1];
    assert_eq!(parse(&long), Err(MetalinkError::TooLong(MAX_BYTES + 1)));
    let urls = "<url>http://a/b</url>".repeat(MAX_URLS + 5);
    let files = parse(document(&format!("<file name='a'>{urls}</file>")).as_bytes()).unwrap();
    assert_eq!((files[0].urls.len(), files[0].skipped), (MAX_URLS, 5));
}

#[test]
fn invalid_documents_are_refused_with_the_reason() {
    assert_eq!(error(""), MetalinkError::Root);
    assert_eq!(error("<html></html>"), MetalinkError::Root);
    assert_eq!(error(&document("")), MetalinkError::Empty);
    assert_eq!(error(&document("<file/>")), MetalinkError::Nameless);
    let old = "<metalink version='3.0' xmlns='http://www.metalinker.org/'/>";
    assert_eq!(error(old), MetalinkError::Empty);
    assert!(matches!(error("<metalink xmlns='urn"), MetalinkError::Syntax { .. }));
    let cut = &EXAMPLE[..EXAMPLE.len() - 20];
    assert!(matches!(error(cut), MetalinkError::Syntax { .. }));
    for field in
        ["<size>many</size>", "<hash type='sha-256'>12</hash>", "<url priority='0'>http://a</url>"]
    {
        let text = error(&document(&format!("<file name='x'>{field}</file>"))).to_string();
        assert!(text.contains("file `x`"), "{text}");
    }
    let hash = |c: &str| format!("<hash type='sha-256'>{}</hash>", c.repeat(64));
    let two = document(&format!("<file name='x'>{}{}</file>", hash("a"), hash("b")));
    assert_eq!(error(&two), MetalinkError::TwoHashes("x".into(), "sha-256"));
}

#[test]
fn paths_stay_below_the_directory() {
    for (name, parts) in [
        ("a/b.iso", &["a", "b.iso"][..]),
        ("/etc/passwd", &["etc", "passwd"]),
        ("../../x", &["x"]),
        ("a/../..\\x", &["a", "_.\\x"]),
        (".ssh/-rf", &["_ssh", "_rf"]),
        ("a\u{0}\nb", &["a__b"]),
    ] {
        let file = File { name: name.into(), ..File::default() };
        let wanted: Vec<String> = parts.iter().map(|p| p.replace('\\', "_")).collect();
        assert_eq!(file.path().unwrap(), wanted, "{name:?}");
    }
    for name in ["", "/", "..", "./.", &"a/".repeat(17)] {
        let file = File { name: name.into(), ..File::default() };
        assert!(file.path().is_err(), "{name:?}");
    }
}

/// The example with bytes removed, inserted and replaced.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let change = (0..EXAMPLE.len(), 0..4usize, prop::collection::vec(any::<u8>(), 0..4));
    prop::collection::vec(change, 0..6).prop_map(|changes| {
        let mut bytes = EXAMPLE.as_bytes().to_vec();
        for (at, cut, put) in changes {
            let at = at.min(bytes.len());
            let end = (at + cut).min(bytes.len());
            bytes.splice(at..end, put);
        }
        bytes
    })
}

/// Tags of the format in any order and nesting.
fn random_tags() -> impl Strategy<Value = String> {
    let words = [
        "<file name='../x'>",
        "</file>",
        "<url>",
        "</url>",
        "<size>",
        "7",
        "</size>",
        "<hash type='sha-256'>",
        "</hash>",
        "<pieces>",
        "</pieces>",
        "http://a/b",
        "&lt;",
        "&#x41;",
        "<!--",
        "-->",
        "<![CDATA[",
        "]]>",
        "<metaurl/>",
        "<url priority='3'/>",
    ];
    prop::collection::vec(prop::sample::select(words.to_vec()), 0..30)
        .prop_map(|words| document(&words.concat()))
}

fn assert_safe(bytes: &[u8]) -> Result<(), TestCaseError> {
    let Ok(files) = parse(bytes) else { return Ok(()) };
    prop_assert!((1..=MAX_FILES).contains(&files.len()));
    for file in files {
        prop_assert!(file.urls.len() <= MAX_URLS);
        for part in file.path().unwrap_or_default() {
            prop_assert!(!part.contains(['/', '\\', '\0', '\n']) && !part.starts_with('.'));
            prop_assert!((1..=file_name::MAX).contains(&part.len()));
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn no_document_panics_or_yields_an_unsafe_path(
        bytes in prop_oneof![
            mutated(),
            random_tags().prop_map(String::into_bytes),
            prop::collection::vec(any::<u8>(), 0..200),
        ]
    ) {
        assert_safe(&bytes)?;
    }

    #[test]
    fn no_name_yields_an_unsafe_path(name in "[a./\\\\\\-~\u{0}é]{0,40}") {
        let file = File { name, ..File::default() };
        for part in file.path().unwrap_or_default() {
            prop_assert!(!part.contains(['/', '\0', '\\']) && !part.starts_with(['.', '-']));
        }
    }
}
