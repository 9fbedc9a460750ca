//! Options of the proxy about relays and the protection of legs.

use crate::commands::{
    get::{Drawing, mesh::Mesh},
    host::StateDir,
};
use anyhow::bail;
use std::path::PathBuf;
use thalweg_net::Route;
use thalweg_paths::chooser::Content;
use thalweg_wire::mesh::{LegKind, Tag, Terms};

/// Relays, and where the host keeps its part.
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "Paths")]
pub struct ProxyPathArgs {
    /// Relays to try besides the direct path, in place of the mesh's: names, HOST:PORTs, or
    /// chains of them
    #[arg(long, value_name = "RELAY[+RELAY…]", value_delimiter = ',')]
    pub via: Vec<String>,

    /// Use no relays
    #[arg(long, conflicts_with = "via")]
    pub no_relays: bool,

    /// Exclude relays with this tag, e.g. country=xx
    #[arg(long, value_name = "TAG", value_delimiter = ',')]
    pub avoid: Vec<Tag>,

    /// How relays for large objects are chosen from the list, `proportional` or `top`
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Drawing::Proportional)]
    #[arg(hide_possible_values = true)]
    pub draw: Drawing,

    /// The file that remembers the rates of paths, or `none`
    /// [default: history.json in the state directory, else in ~/.cache/thalweg]
    #[arg(long, value_name = "FILE|none")]
    pub history: Option<PathBuf>,

    /// Settings' file.
    #[arg(long, value_name = "FILE")]
    #[arg(help = "The settings file, of which [interfaces] is used\n\
        [default: thalweg/config.toml in $XDG_CONFIG_HOME or ~/.config]")]
    pub config: Option<PathBuf>,

    #[command(flatten)]
    pub state_dir: StateDir,
}

impl ProxyPathArgs {
    /// The conditions for relays that carry this content.
    fn terms(&self, content: Content) -> Terms {
        let leg = match content {
            Content::Clear | Content::Unknown => LegKind::Sealed,
            Content::Encrypted => LegKind::Open,
        };
        Terms { leg, avoid: self.avoid.iter().cloned().collect() }
    }

    /// The relays by name, as the mesh is now.
    pub fn relays(&self, mesh: &Mesh, content: Content) -> Vec<(String, Route)> {
        let terms = self.terms(content);
        if self.no_relays {
            return Vec::new();
        }
        if self.via.is_empty() {
            return mesh.relays(&terms);
        }
        // Relays that have left the mesh meanwhile are skipped.
        let route = |name: &String| Some((name.clone(), mesh.route(name, &terms).ok()?));
        self.via.iter().filter_map(route).collect()
    }

    /// Checks that the relays and tags that the user named exist.
    ///
    /// # Errors
    /// The first one that does not.
    pub fn check(&self, mesh: &Mesh) -> anyhow::Result<()> {
        mesh.check_tags(&self.avoid)?;
        for name in &self.via {
            if mesh.route(name, &self.terms(Content::Clear))?.is_direct() {
                bail!("--via direct has no effect: the direct path is always tried");
            }
        }
        Ok(())
    }

    /// Whether the relays of the mesh are tried without being named.
    pub fn tries_mesh(&self) -> bool {
        self.via.is_empty() && !self.no_relays
    }
}
