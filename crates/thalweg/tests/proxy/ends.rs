//! Starting and ending `thalweg proxy`.

use crate::started::{Started, thalweg};
use std::process::Stdio;
use tempfile::TempDir;

#[test]
fn it_does_not_start_where_it_must_not_or_cannot() {
    let dir = TempDir::new().unwrap();
    let first = Started::new(dir.path(), &[]);
    let taken = first.at.to_string();
    for (args, says) in [
        (&["--listen", "0.0.0.0:0"][..], "is no loopback address"),
        (&["--listen", &taken], "--listen takes another port"),
        (&["--via", "fra"], "`fra` names a node"),
        (&["--via", "direct"], "--via direct says nothing"),
        (&["--avoid", "country=xx"], "--avoid"),
    ] {
        let mut command = thalweg(dir.path());
        command
            .arg("proxy")
            .args(["--listen", "127.0.0.1:0"].iter().filter(|_| args[0] != "--listen"));
        let output = command.args(args).stdout(Stdio::piped()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(says), "{args:?}: {said}");
    }
}

#[tokio::test]
async fn it_ends_in_order_and_counts() {
    let dir = TempDir::new().unwrap();
    let (events, _) = Started::new(dir.path(), &[]).end().await;
    let [summary] = &events[..] else { panic!("{events:?}") };
    assert_eq!((&summary["event"], &summary["connections"]), (&"summary".into(), &0.into()));
}
