//! Tests of whole topologies as users write them.

mod file;
mod generate;
mod resolve;

use super::{Resolved, Topology};

/// The resolved topology of a valid file.
fn resolved(toml: &str) -> Resolved {
    Topology::from_toml(toml).and_then(|t| t.resolve()).unwrap_or_else(|e| panic!("{e}\n{toml}"))
}

/// The error of an invalid file, from the parser or from `resolve`.
fn refused(toml: &str) -> String {
    match Topology::from_toml(toml).and_then(|t| t.resolve()) {
        Ok(_) => panic!("accepted:\n{toml}"),
        Err(e) => e.to_string(),
    }
}

/// The names of the links from one interface to another.
fn route<'a>(net: &'a Resolved, from: &str, to: &str) -> Vec<&'a str> {
    let at = |name| net.interface_named(name).unwrap();
    let links = net.path_links(at(from), at(to));
    let links = links.unwrap_or_else(|| panic!("no path from {from} to {to}"));
    links.iter().map(|&l| net.links[l].name.as_str()).collect()
}
