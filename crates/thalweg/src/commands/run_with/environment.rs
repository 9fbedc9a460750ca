//! The environment variables that tell programs of a proxy.

use std::net::SocketAddr;

/// This host itself, which no relay reaches better.
pub const NEAR: &str = "localhost,127.0.0.1,::1";

/// The variables and their values, for a proxy at `at`. Hosts in the caller's own `no_proxy` stay, and `near` is added.
///
/// - `http_proxy`, `https_proxy`, `all_proxy`, in both cases: curl, wget, aria2, git, apt, pip, cargo, Go, … All are
///   `http://` URLs, which every program reads: aria2 refuses to start with a `socks5h://` one, and some Python
///   libraries need a module for it.
/// - `npm_config_…`: npm and yarn. `NODE_USE_ENV_PROXY`: Node.js itself.
/// - `RSYNC_PROXY`: rsync to daemons.
pub fn variables(at: SocketAddr, near: &str) -> Vec<(&'static str, String)> {
    let url = format!("http://{at}");
    let mut variables: Vec<_> = [
        "http_proxy",
        "https_proxy",
        "all_proxy",
        // CGI programs rightly ignore it: there it is a header field of the request.
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "npm_config_proxy",
        "npm_config_https_proxy",
    ]
    .map(|name| (name, url.clone()))
    .into();
    let own = ["no_proxy", "NO_PROXY"].iter().find_map(|name| std::env::var(name).ok());
    let none = exceptions(own.as_deref().unwrap_or_default(), near);
    variables.extend(["no_proxy", "NO_PROXY", "npm_config_noproxy"].map(|n| (n, none.clone())));
    variables.push(("NODE_USE_ENV_PROXY", "1".to_owned()));
    variables.push(("RSYNC_PROXY", at.to_string()));
    variables
}

/// The variables among these with which the caller had set a proxy.
pub fn replaced(
    variables: &[(&'static str, String)],
    is_set: impl Fn(&str) -> bool,
) -> Vec<&'static str> {
    let names_a_proxy = |name: &str| name.to_ascii_lowercase().ends_with("_proxy");
    let kept = ["no_proxy", "NO_PROXY", "NODE_USE_ENV_PROXY"];
    let names = variables.iter().map(|(name, _)| *name);
    names.filter(|n| names_a_proxy(n) && !kept.contains(n) && is_set(n)).collect()
}

/// Joins both lists, with each host once.
fn exceptions(own: &str, near: &str) -> String {
    let mut hosts: Vec<&str> = Vec::new();
    for host in own.split(',').chain(near.split(',')).map(str::trim) {
        if !host.is_empty() && !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    hosts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_are_added_to_the_callers_own() {
        assert_eq!(exceptions("", NEAR), NEAR);
        assert_eq!(exceptions("a.example, localhost", NEAR), "a.example,localhost,127.0.0.1,::1");
        assert_eq!(exceptions("", ""), "");
    }

    #[test]
    fn all_variables_name_the_same_proxy() {
        let all = variables("127.0.0.1:7".parse().unwrap(), NEAR);
        let value = |name: &str| all.iter().find(|(n, _)| *n == name).map(|(_, v)| v.as_str());
        for name in ["http_proxy", "HTTPS_PROXY", "all_proxy", "npm_config_proxy"] {
            assert_eq!(value(name), Some("http://127.0.0.1:7"), "{name}");
        }
        assert_eq!(value("RSYNC_PROXY"), Some("127.0.0.1:7"));
    }
}
