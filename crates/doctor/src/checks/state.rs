//! The state directory: rights, keys, the mesh's file.

use std::path::PathBuf;
use thalweg_wire::doctor::Finding;

/// What is wrong with a file of the state directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateFault {
    /// There is no directory, or no mesh in it.
    NoMesh,
    /// It belongs to another user.
    Owner { owner: u32 },
    /// Others may use the directory or a file of the mesh.
    Mode { path: PathBuf, right: u32 },
    /// Others may read a key.
    KeyMode { path: PathBuf },
    /// A key is missing or damaged.
    Key,
    /// `mesh.json` is damaged.
    MeshFile,
    /// Something else.
    Other,
}

/// The state directory and its faults, each with the message that commands print.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateFacts {
    pub directory: PathBuf,
    pub faults: Vec<(StateFault, String)>,
}

/// Whether the daemon and commands can use the directory.
pub fn check(facts: &StateFacts) -> Vec<Finding> {
    if facts.faults.is_empty() {
        let seen = format!(
            "{}: keys and mesh are readable, by this user alone",
            facts.directory.display()
        );
        return vec![Finding::ok("state.usable", seen)];
    }
    facts.faults.iter().map(|(fault, why)| faulty(facts, fault, why)).collect()
}

fn faulty(facts: &StateFacts, fault: &StateFault, why: &str) -> Finding {
    let directory = facts.directory.display();
    let refused = "all commands refuse this directory";
    match fault {
        StateFault::NoMesh => Finding::note("state.no-mesh", why)
            .means("downloads work without a mesh; nothing else does")
            .remedy("thalweg mesh join TOKEN"),
        StateFault::Owner { owner } => Finding::error("state.owner", why).means(refused).remedy(
            format!("sudo -u '#{owner}' thalweg doctor # or: chown -R $(id -u) {directory}"),
        ),
        StateFault::Mode { path, right } => Finding::error("state.rights", why)
            .means(refused)
            .remedy(format!("chmod {right:o} {}", path.display())),
        StateFault::KeyMode { path } => Finding::error("state.key-rights", why)
            .means("others can act as this host; the key is not used")
            .remedy(format!("chmod 600 {}", path.display())),
        StateFault::Key => {
            Finding::error("state.key", why).means("this host cannot prove who it is").remedy(
                "restore the key from a copy, or move it away and run: thalweg mesh join TOKEN",
            )
        }
        StateFault::MeshFile => Finding::error("state.damaged", why)
            .means("this host does not know its mesh")
            .remedy(format!("mv {directory}/mesh.json{{,.damaged}}; thalweg mesh join TOKEN")),
        StateFault::Other => Finding::error("state.unreadable", why).means(refused),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_a_command_that_mends_it() {
        let key = StateFault::KeyMode { path: "/s/node.key".into() };
        let rights = StateFault::Mode { path: "/s".into(), right: 0o700 };
        let faults = vec![(key, "k".to_owned()), (rights, "m".to_owned())];
        let found = check(&StateFacts { directory: "/s".into(), faults });
        let remedies: Vec<&str> = found.iter().map(|f| &*f.remedy).collect();
        assert_eq!(remedies, ["chmod 600 /s/node.key", "chmod 700 /s"]);
        assert_eq!(check(&StateFacts::default())[0].id, "state.usable");
    }
}
