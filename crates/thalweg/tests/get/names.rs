//! Outputs of downloads: standard output, names that servers give, directories.

use super::*;
use sha2::{Digest, Sha256};
use std::fs;
use tempfile::TempDir;

#[tokio::test(flavor = "multi_thread")]
async fn standard_output_has_the_bytes_in_order_and_nothing_else() {
    let version = Version::new(1, LENGTH);
    let server = Server::honest(&version).await;
    let dir = TempDir::new().unwrap();
    let (a, b) = (url(&server, "a"), url(&server, "b"));
    let output = run(dir.path(), &[&a, &b, "-o", "-"]).await;
    assert_done(&output);
    assert!(output.stdout == [&version.bytes[..], &version.bytes[..]].concat());
    assert!(names(dir.path()).is_empty());
    assert!(text(&output.stderr).contains("2 of 2 files"), "{}", text(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_hash_yields_no_output() {
    let server = Server::honest(&Version::new(1, LENGTH)).await;
    let dir = TempDir::new().unwrap();
    let wrong = "0".repeat(64);
    for args in [&["-o", "-"][..], &["-o", "file"]] {
        let url = server.url();
        let args = [&[url.as_str(), "--sha256", &wrong][..], args].concat();
        let output = run(dir.path(), &args).await;
        assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
        assert!(output.stdout.is_empty());
        assert!(names(dir.path()).is_empty(), "{:?}", names(dir.path()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_from_the_server_stays_in_the_directory_and_replaces_nothing() {
    let version = Version::new(1, 1000);
    let server = Server::start(&version, |_, reply| {
        reply.set("content-disposition", "attachment; filename=\"../../.evil\"");
    })
    .await;
    let dir = TempDir::new().unwrap();
    let output = run(dir.path(), &[&server.url(), "-J", "-P", "deep/er"]).await;
    assert_done(&output);
    let made = names(&dir.path().join("deep/er"));
    assert_eq!(made.len(), 1, "{made:?}");
    assert!(!made[0].starts_with('.') && made[0].ends_with("evil"), "{made:?}");
    assert_eq!(names(dir.path()), ["deep"]);
    fs::write(dir.path().join("deep/er").join(&made[0]), "mine").unwrap();
    let again = run(dir.path(), &[&server.url(), "-J", "-P", "deep/er"]).await;
    let kept = fs::read(dir.path().join("deep/er").join(&made[0])).unwrap();
    assert_eq!(kept, b"mine", "{}", text(&again.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unusable_directory_is_reported() {
    let server = Server::honest(&Version::new(1, 1000)).await;
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    let output = run(dir.path(), &[&server.url(), "-P", "file/x"]).await;
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(said.contains("file/x"), "{said}");
    let output = run(dir.path(), &[&server.url(), "-o", "/proc/nowhere/x"]).await;
    assert_eq!(output.status.code(), Some(6), "{}", text(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_another_program_is_continued_only_with_a_hash() {
    let version = Version::new(1, LENGTH);
    let server = Server::honest(&version).await;
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("file.bin");
    fs::write(&file, &version.bytes[..LENGTH - 1000]).unwrap();
    let url = server.url();
    let refused = run(dir.path(), &[&url, "-C", "-"]).await;
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("--sha256"), "{}", text(&refused.stderr));
    assert_eq!(fs::metadata(&file).unwrap().len(), LENGTH as u64 - 1000);
    let hash = format!("{:x}", Sha256::digest(&version.bytes));
    let output = run(dir.path(), &[&url, "-C", "-", "--sha256", &hash]).await;
    assert_done(&output);
    let said = text(&output.stderr);
    assert!(said.contains("3 MB of file.bin used"), "{said}");
    assert!(said.contains("of which 257 kB now"), "{said}");
    assert!(fs::read(&file).unwrap() == version.bytes);
    let late = LENGTH as u64 - 1000;
    let asked = server.segments();
    assert!(asked.iter().all(|range| range.start >= late), "{asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_complete_file_is_not_fetched_again() {
    let version = Version::new(1, LENGTH);
    let server = Server::honest(&version).await;
    let dir = TempDir::new().unwrap();
    let hash = format!("{:x}", Sha256::digest(&version.bytes));
    let url = server.url();
    fs::write(dir.path().join("file.bin"), &version.bytes).unwrap();
    for args in [&["--sha256", &hash][..], &["--sha256", &hash, "-C", "-"]] {
        let output = run(dir.path(), &[&[url.as_str()], args].concat()).await;
        assert_done(&output);
        assert!(text(&output.stderr).contains("already complete"), "{}", text(&output.stderr));
        assert!(server.segments().is_empty(), "{:?}", server.segments());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unchanged_own_file_is_not_fetched_again() {
    let version = Version::new(1, LENGTH);
    let server = Server::honest(&version).await;
    // On the file system of the build directory: not every file system has attributes.
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = dir.path().join("file.bin");
    let url = server.url();
    assert_done(&run(dir.path(), &[&url]).await);
    let marked = std::process::Command::new("getfattr").arg("-d").arg(&file).output();
    let again = run(dir.path(), &[&url]).await;
    assert_done(&again);
    if !text(&again.stderr).contains("already complete") {
        let has = marked.map(|m| text(&m.stdout)).unwrap_or_default();
        assert!(!has.contains("thalweg"), "marked, and fetched again: {}", text(&again.stderr));
        println!("not tested: the filesystem keeps no attributes");
        return;
    }
    fs::write(&file, &version.bytes).unwrap();
    let output = run(dir.path(), &[&url]).await;
    assert!(!text(&output.stderr).contains("already complete"), "{}", text(&output.stderr));
    let newer = Version::new(2, LENGTH);
    server.publish(newer.clone());
    assert_done(&run(dir.path(), &[&url]).await);
    assert!(fs::read(&file).unwrap() == newer.bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_in_lists_follow_no_links() {
    let server = Server::honest(&Version::new(1, 1000)).await;
    let dir = TempDir::new().unwrap();
    fs::create_dir_all(dir.path().join("in")).unwrap();
    std::os::unix::fs::symlink("/tmp", dir.path().join("in/out")).unwrap();
    std::os::unix::fs::symlink("../mine", dir.path().join("in/file")).unwrap();
    let list = format!("{0}\tout/x\n{0}\tfile\n", server.url());
    fs::write(dir.path().join("list"), list).unwrap();
    let output = run(dir.path(), &["-P", "in", "-i", "list"]).await;
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("in/out is a symbolic link") && said.contains("in/file is a symbolic link"),
        "{said}"
    );
    assert!(server.asks().is_empty());
}
