//! Multihomed: a client with several interfaces, and a server.

use super::Generated;
use crate::topology::{HostSpec, LinkSpec, PathSpec, TopologyError};
use serde::{Deserialize, Serialize};

/// `kind = "multihomed"`: host `client` with one interface per link, host `server` with one.
///
/// The links are `wan0`, `wan1` …, forward from the client. With `server_access` all paths share the link
/// `server.access`, forward from the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Multihomed {
    /// The client's links, one per interface.
    pub links: Vec<LinkSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_access: Option<LinkSpec>,
}

impl Multihomed {
    pub(super) fn expand(&self) -> Result<Generated, TopologyError> {
        if self.links.is_empty() {
            let why = "give at least one link: [{ rate = \"20 Mbit/s\", delay = \"5 ms\" }]";
            return Err(TopologyError::value("generate.links", "[]", why));
        }
        let mut out = Generated::default();
        let client = HostSpec { interfaces: Some(self.links.len()), names: Vec::new() };
        out.hosts.insert("client".to_owned(), client);
        out.host("server");
        if let Some(access) = &self.server_access {
            out.link("server.access".to_owned(), access);
        }
        for (k, link) in self.links.iter().enumerate() {
            let wan = format!("wan{k}");
            out.link(wan.clone(), link);
            let mut path = PathSpec::new(&format!("client:{k}"), "server", &[&wan]);
            path.links
                .extend(self.server_access.is_some().then(|| super::downstream_link("server")));
            out.paths.push(path);
        }
        Ok(out)
    }
}
