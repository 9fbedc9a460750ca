//! Read rights: only named members can read, and only offered directories.

use crate::scene::{Node, introduce, list, name, names, signed, the_file, three};
use std::{os::unix::fs::symlink, path::PathBuf};
use thalweg_base::log::Log;
use thalweg_files::remote::Remote;
use thalweg_files::{Files, OfferError, remote::RemoteError};
use thalweg_files::{OfferedDirectory, Settings};
use thalweg_mesh::Membership;
use thalweg_wire::mesh::MemberPattern;
use thalweg_wire::{
    Signer as _,
    object::{Failure, FilePath, FileRef, ReadRequest, Request},
};

/// The refusal of a read of this file.
async fn refused(node: &Node, from: &Node, file: FileRef) -> Failure {
    let mut remote = node.open(from, &[]).await;
    let mut got = Vec::new();
    let read = ReadRequest { file, from: 0, bytes: 1 };
    match remote.read(read, &mut got).await {
        Err(RemoteError::Refused { why, .. }) => {
            assert!(got.is_empty(), "{got:?}");
            why
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn only_members_that_are_named_see_anything() {
    let one = Node::start(1, &["n2", "@tag3"]).await;
    let others = [Node::start(2, &[]).await, Node::start(3, &[]).await, Node::start(4, &[]).await];
    introduce(&[&one, &others[0], &others[1], &others[2]]);
    one.put("file", b"secret");
    let root = one.root("");
    for named in &others[..2] {
        let mut remote = named.open(&one, &[]).await;
        let (entries, _) = list(&mut remote, &[&root], &[]).await;
        assert_eq!(names(&entries), ["", "file"]);
    }
    let file = the_file(&mut others[0].open(&one, &[]).await, &one.root("/file")).await;
    let mut remote = others[2].open(&one, &[]).await;
    let (entries, failures) = list(&mut remote, &[&root, &one.root("/none")], &[]).await;
    assert!(entries.is_empty(), "{entries:?}");
    // Existing and missing files look the same to it.
    assert!(failures.iter().all(|(_, why)| why.contains("does not offer")), "{failures:?}");
    assert_eq!(failures.len(), 2);
    let why = refused(&others[2], &one, file.clone()).await;
    assert!(matches!(why, Failure::NotOffered(_)), "{why:?}");
    // Nor can it be read by its hash.
    let hashes = remote.check(vec![file]).await.unwrap();
    assert!(hashes[0].is_err());
}

#[tokio::test]
async fn nothing_leads_out_of_the_offered_directories() {
    let [one, _two, three] = three().await;
    std::fs::write(one.dir.path().join("secret"), b"secret").unwrap();
    one.put("in/file", b"inside");
    symlink("../secret", one.data.join("up")).unwrap();
    symlink(one.dir.path(), one.data.join("away")).unwrap();
    symlink("in", one.data.join("within")).unwrap();
    symlink("loop", one.data.join("loop")).unwrap();
    symlink("/proc/self/root", one.data.join("magic")).unwrap();
    let mut remote = three.open(&one, &[]).await;
    // Links are listed as links, and their targets are not.
    let (entries, failures) = list(&mut remote, &[&one.root("/")], &[]).await;
    assert_eq!(
        names(&entries),
        ["", "away", "in", "in/file", "loop", "magic", "up", "within"],
        "{failures:?}"
    );
    let inside = the_file(&mut remote, &one.root("/in/file")).await;
    for (path, why) in [
        ("up", "symbolic link"),
        ("away/secret", "leads out"),
        ("magic/etc/passwd", "leads out"),
        ("loop/x", "loop"),
        ("in", "directory"),
        ("nowhere", "No such file"),
    ] {
        let path = FilePath::new(path.into()).unwrap();
        let file = FileRef { root: one.root(""), path, snapshot: inside.snapshot };
        let said = refused(&three, &one, file).await.to_string();
        assert!(said.contains(why), "{said}");
    }
    for (asked, why) in [
        ("/../secret", "does not offer"),
        ("/in/../../secret", "does not offer"),
        ("/away/", "leads out"),
        ("/away/secret", "leads out"),
        ("/up/", "leads out"),
        ("/*/../secret", "nothing"),
        ("base", "does not offer"),
    ] {
        let (entries, failures) = list(&mut remote, &[&one.root(asked)], &[]).await;
        assert!(entries.is_empty(), "{asked}: {entries:?}");
        assert!(failures[0].1.contains(why), "{asked}: {failures:?}");
    }
    let (_, failures) = list(&mut remote, &[b"/etc/passwd", b"etc", b""], &[]).await;
    assert!(failures.iter().all(|(_, why)| why.contains("does not offer")), "{failures:?}");
    // A link that stays inside is followed if it is requested with a final `/`.
    let (entries, _) = list(&mut remote, &[&one.root("/within/")], &[]).await;
    assert_eq!(names(&entries), ["", "file"]);
}

#[tokio::test]
async fn revocation_cuts_a_transfer_and_keeps_the_member_out() {
    let [one, two, three] = three().await;
    one.put("file", &vec![7; 50_000_000]);
    let mut remote = three.open(&one, &[]).await;
    let file = the_file(&mut remote, &one.root("/file")).await;
    // Requested but not read, so that the sender waits.
    let read = ReadRequest { file: file.clone(), from: 0, bytes: 50_000_000 };
    remote.ask(&Request::Read(read.clone())).await.unwrap();
    let roster = signed(9, vec![one.member(), two.member()]);
    one.membership.offer(&roster).unwrap();
    let line = one.line("event=files").await;
    assert!(line.contains("revoked") && line.contains("peer=n3"), "{line}");
    let mut got = Vec::new();
    assert!(matches!(remote.receive(0, &mut got).await, Err(RemoteError::Lost { .. })));
    assert!(got.len() < 50_000_000);
    assert!(matches!(remote.read(read, &mut got).await, Err(RemoteError::Lost { .. })));
    // The member is not admitted again, which shows at the first answer.
    let again = async {
        let mut remote =
            Remote::open(&three.dialer(), &name(1), &[]).await.map_err(|e| e.to_string())?;
        remote.check(vec![file]).await.map_err(|e| e.to_string())
    };
    let why = again.await.unwrap_err();
    assert!(why.contains("does not admit"), "{why}");
}

#[test]
fn a_directory_with_the_nodes_keys_is_not_offered() {
    let dir = tempfile::TempDir::new().unwrap();
    let [state, data] = ["state", "data"].map(|name| dir.path().join(name));
    std::fs::create_dir(&state).unwrap();
    std::fs::create_dir_all(data.join("sub")).unwrap();
    symlink(dir.path(), data.join("link")).unwrap();
    let open = |path: PathBuf| {
        let offer = vec![OfferedDirectory { path, members: vec![MemberPattern::All] }];
        let settings = Settings { offer, ..Settings::default() };
        let own = crate::scene::key(200).id();
        let membership = Membership::new(own, None);
        Files::new(&settings, &state, own, membership, Log::to_queue().0)
    };
    for path in [state.clone(), dir.path().to_owned(), data.join("link"), "/".into()] {
        assert!(matches!(open(path.clone()), Err(OfferError::Keys { .. })), "{path:?}");
    }
    assert!(matches!(open(dir.path().join("none")), Err(OfferError::Open { .. })));
    assert!(open(data.join("sub")).is_ok());
}
