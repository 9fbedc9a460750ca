//! Messages, events and help of `thalweg get`.

use super::*;
use tempfile::TempDir;

#[tokio::test(flavor = "multi_thread")]
async fn json_failures_have_their_exit_code() {
    let server = Server::start(&Version::new(1, 10), |_, reply| reply.status(403)).await;
    let dir = TempDir::new().unwrap();
    let url = server.url();
    for (args, code) in [(&[url.as_str()][..], 3), (&[url.as_str(), "--sha256", "1"], 2)] {
        let output = run(dir.path(), &[args, &["--json"]].concat()).await;
        assert_eq!(output.status.code(), Some(code));
        let events = events(&output);
        let last = events.last().unwrap();
        assert_eq!((&last["event"], &last["exit_code"]), (&"failed".into(), &code.into()));
        assert!(last["why"].as_str().is_some_and(|why| !why.is_empty()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_reader_has_its_own_exit_code() {
    let server = Server::honest(&Version::new(1, 20 * LENGTH)).await;
    let dir = TempDir::new().unwrap();
    let mut command = thalweg(dir.path(), &[&server.url(), "-o", "-"]);
    let output = tokio::task::spawn_blocking(move || {
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        child.wait_with_output().unwrap()
    });
    let output = output.await.unwrap();
    assert!(!text(&output.stderr).contains("panic"), "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(9), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("reader of standard output"));
}

#[tokio::test(flavor = "multi_thread")]
async fn options_of_curl_are_accepted_or_explained() {
    let server = Server::honest(&Version::new(1, 1000)).await;
    let dir = TempDir::new().unwrap();
    let url = server.url();
    assert_done(&run(dir.path(), &["-fsSL", &url]).await);
    assert_done(&run(dir.path(), &["-v", &url]).await);
    assert_done(&run(dir.path(), &[&url, "-o", "/dev/null"]).await);
    std::fs::write(dir.path().join("a.xml"), "").unwrap();
    for (args, word) in [
        (&["-c", &url][..], "-C -"),
        (&[&url, "-k"], "--cacert"),
        (&["-x", "localhost:1", &url], "--via"),
        (&["-z", "today", &url], "not fetched again"),
        (&[&url, "--avoid", "country=xx"], "in no mesh"),
        (&["a.xml"], "--metalink a.xml"),
        (&["-i", "a.xml"], "no URLs in a.xml"),
        (&["-i", "a.xml", "-o", "x"], "-o is given"),
    ] {
        let output = run(dir.path(), args).await;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(word), "{args:?}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_path_is_not_reported_as_a_choice() {
    let server = Server::honest(&Version::new(1, 1000)).await;
    let dir = TempDir::new().unwrap();
    let said = text(&run(dir.path(), &[&server.url(), "--interface", "none"]).await.stderr);
    assert!(!said.contains("trying") && !said.contains("chosen"), "{said}");
    let missing = Server::start(&Version::new(1, 10), |_, reply| reply.status(404)).await;
    let (a, b) = (url(&missing, "a"), url(&missing, "b"));
    let said = text(&run(dir.path(), &[&a, &b, "--interface", "none"]).await.stderr);
    assert_eq!(said.matches("404").count(), 2, "once each: {said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_documented_exit_code_is_in_the_help() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guide = std::fs::read_to_string(root.join("docs/get.md")).unwrap();
    let help = text(&run(&root, &["--help"]).await.stdout);
    let table = guide.split("## Exit codes").nth(1).unwrap().split("\n## ").next().unwrap();
    let codes = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(' ').next());
    let codes: Vec<&str> = codes.filter(|code| code.parse::<u8>().is_ok()).collect();
    assert_eq!(codes, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "130"]);
    for code in codes {
        let listed = help.lines().any(|line| line.trim_start().starts_with(&format!("{code} ")));
        assert!(listed, "{code} is not in the help");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_flag_is_in_the_guide() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guide = std::fs::read_to_string(root.join("docs/get.md")).unwrap();
    let help = text(&run(&root, &["--help"]).await.stdout);
    let flags = help.lines().filter_map(|line| {
        let line = line.trim_start();
        let long = line.find("--").filter(|_| line.starts_with('-'))?;
        line[long..].split([' ', ',', '<']).next()
    });
    let flags: Vec<&str> = flags.collect();
    assert!(flags.len() > 30, "{flags:?}");
    // The guide uses the short names that curl's users know.
    let short = [
        ("--output", "`-o "),
        ("--remote-name", "`-O`"),
        ("--remote-header-name", "`-J`"),
        ("--dir", "`-P "),
        ("--continue-at", "`-C -`"),
        ("--input-file", "`-i "),
        ("--header", "`-H`"),
        ("--user-agent", "`-A`"),
        ("--user", "`-u "),
        ("--netrc", "`-n`"),
        ("--help", ""),
        ("--state", ""),
    ];
    for flag in flags {
        let name = short.iter().find(|(long, _)| *long == flag).map_or(flag, |(_, short)| short);
        assert!(guide.contains(name), "{flag} is not in docs/get.md");
    }
}
