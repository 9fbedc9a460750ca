//! Case 27: a token admits one host.

use super::host::{Host, text};

/// The number of hosts that use one token at the same time.
const HOSTS: usize = 6;

#[test]
fn one_of_several_hosts_with_one_token_joins_and_a_replay_is_refused() {
    let fra = Host::founder();
    let _runs = fra.start();
    let token = fra.ok(&["mesh", "token"]);
    let hosts: Vec<Host> = (0..HOSTS).map(|_| Host::new()).collect();
    let names: Vec<String> = (0..HOSTS).map(|i| format!("host{i}")).collect();
    let join = |(host, name): (&Host, &String)| {
        host.command(&["mesh", "join", token.trim(), "--name", name, "--no-daemon"])
            .spawn()
            .unwrap()
    };
    let racing: Vec<_> = hosts.iter().zip(&names).map(join).collect();
    let done: Vec<_> = racing.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    let losers: Vec<_> = done.iter().filter(|output| !output.status.success()).collect();
    assert_eq!(losers.len(), HOSTS - 1, "{done:?}");
    for output in losers {
        let said = text(&output.stderr);
        assert!(said.contains("was used by another host"), "{said}");
    }
    // A later use is refused, too, and the roster has the founder and the winner.
    let said =
        Host::new().fails(1, &["mesh", "join", token.trim(), "--name", "late", "--no-daemon"]);
    assert!(said.contains("was used by another host"), "{said}");
    let members = fra.json(&["mesh", "members", "--json"])["members"].as_array().unwrap().len();
    assert_eq!(members, 2);
}
