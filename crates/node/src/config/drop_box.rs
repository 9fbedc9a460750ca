//! `[[drop_box]]`: submissions that this node accepts.

use super::{Problem, text};
use serde::Deserialize;
use std::{collections::BTreeSet, path::PathBuf};
use thalweg_dropbox::Settings;
use thalweg_units::{ByteSize, NodeId, WallTime};
use thalweg_wire::{bistro::Sheet, mesh::Name};

/// One drop box of [`thalweg_dropbox`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DropBoxSection {
    /// The name of the box.
    #[serde(deserialize_with = "text::option")]
    pub name: Option<Name>,
    /// The member that owns the box, if this node only takes data for it; absent: this node.
    #[serde(deserialize_with = "text::option")]
    pub destination: Option<Name>,
    /// The deadline of commitments; only for own boxes.
    #[serde(deserialize_with = "text::option")]
    pub until: Option<WallTime>,
    /// The members whose nodes take data for the box; empty: this node itself. Only for own boxes.
    #[serde(deserialize_with = "text::list")]
    pub nodes: Vec<Name>,
    /// Whether any key may submit, not only those of members.
    pub open: bool,
    /// Whether members may submit.
    pub members: bool,
    /// Keys that may submit although they do not belong to members.
    #[serde(deserialize_with = "text::list")]
    pub keys: BTreeSet<NodeId>,
    /// The most bytes of one submission.
    #[serde(deserialize_with = "text::one")]
    pub max_bytes: ByteSize,
    /// The most bytes of all commitments (own boxes), and of the data that is stored here.
    #[serde(deserialize_with = "text::one")]
    pub max_total: ByteSize,
    /// The most submissions of one key.
    pub max_per_key: u64,
    /// The most submissions of one key if it must not have a choice after the deadline; absent: `max_per_key`.
    pub versions: Option<u64>,
    /// The most bytes of all commitments of one key; absent: see [`Settings::bytes_per_key`].
    #[serde(deserialize_with = "text::option")]
    pub max_bytes_per_key: Option<ByteSize>,
    /// The most submissions of all keys.
    pub max_submissions: u64,
    /// The sustained rate of commitments and pushes that one address may begin, per second; ten times as many may begin
    /// at once.
    pub max_rate: u32,
    /// Where data is stored; absent: below the state directory.
    pub directory: Option<PathBuf>,
}

impl Default for DropBoxSection {
    fn default() -> Self {
        let Settings {
            name,
            destination,
            until,
            nodes,
            open,
            members,
            keys,
            max_bytes,
            max_total,
            max_per_key,
            versions,
            max_bytes_per_key,
            max_submissions,
            max_rate,
            directory,
        } = Settings::default();
        Self {
            name,
            destination,
            until,
            nodes,
            open,
            members,
            keys,
            max_bytes,
            max_total,
            max_per_key,
            versions,
            max_bytes_per_key,
            max_submissions,
            max_rate,
            directory,
        }
    }
}

impl From<&DropBoxSection> for Settings {
    fn from(section: &DropBoxSection) -> Self {
        let DropBoxSection {
            name,
            destination,
            until,
            nodes,
            open,
            members,
            keys,
            max_bytes,
            max_total,
            max_per_key,
            versions,
            max_bytes_per_key,
            max_submissions,
            max_rate,
            directory,
        } = section.clone();
        Self {
            name,
            destination,
            until,
            nodes,
            open,
            members,
            keys,
            max_bytes,
            max_total,
            max_per_key,
            versions,
            max_bytes_per_key,
            max_submissions,
            max_rate,
            directory,
        }
    }
}

/// Reports what is wrong with the boxes.
pub(super) fn check(boxes: &[DropBoxSection], problems: &mut Vec<Problem>) {
    let mut names = BTreeSet::new();
    for (i, one) in boxes.iter().enumerate() {
        let mut wrong = |key: &str, what: &str| {
            problems.push(Problem::of(format!("drop_box.{}.{key}", i + 1), what));
        };
        match &one.name {
            None => wrong("name", "a drop box needs a name, e.g. name = \"taxes\""),
            Some(name) if !names.insert(name) => {
                wrong("name", "another drop box has the same name")
            }
            Some(_) => {}
        }
        if one.destination.is_none() && one.until.is_none() {
            let what = "a drop box of this node needs a deadline, e.g. until = \
                        \"2026-04-15T23:59:00Z\"; if this node only receives data for a box of \
                        another node, set `destination`";
            wrong("until", what);
        }
        if one.destination.is_some() && (one.until.is_some() || !one.nodes.is_empty()) {
            wrong(
                "destination",
                "only the destination sets `until` and `nodes`; leave them out \
                                  here",
            );
        }
        if one.nodes.len() > Sheet::MAX_NODES {
            wrong("nodes", &format!("a drop box has at most {} nodes", Sheet::MAX_NODES));
        }
        if one.directory.as_ref().is_some_and(|dir| !dir.is_absolute()) {
            wrong("directory", "give an absolute path");
        }
        let counts = [
            ("max_bytes", one.max_bytes == ByteSize::ZERO),
            ("max_total", one.max_total == ByteSize::ZERO),
            ("max_per_key", one.max_per_key == 0),
            ("versions", one.versions == Some(0)),
            ("max_bytes_per_key", one.max_bytes_per_key == Some(ByteSize::ZERO)),
            ("max_submissions", one.max_submissions == 0),
            ("max_rate", one.max_rate == 0),
        ];
        for (key, _) in counts.into_iter().filter(|(_, zero)| *zero) {
            wrong(key, "0 allows no submissions; to have no drop box, leave out its section");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_they_are_reported() {
        let text = r#"
            name = "taxes"
            until = "2026-04-15T23:59:00Z"
            nodes = ["fra", "nyc"]
            open = true
            members = false
            keys = ["abababababababababababababababababababababababababababababababab"]
            max_bytes = "10 MB"
            max_bytes_per_key = "30 MB"
            max_rate = 7
            directory = "/srv/taxes"
        "#;
        let own: DropBoxSection = toml::from_str(text).unwrap();
        let others = toml::from_str("name = \"taxes\"\ndestination = \"fra\"").unwrap();
        for one in [own, others] {
            assert_eq!(
                serde_json::from_value::<DropBoxSection>(Settings::from(&one).report()).unwrap(),
                one
            );
        }
    }

    /// A key that commits to many versions can choose after the deadline which one it delivers.
    #[test]
    fn sealed_bids_have_one_version() {
        let bounds = |text: &str| {
            let one: DropBoxSection = toml::from_str(text).unwrap();
            Settings::from(&one).submissions_per_key()
        };
        assert_eq!(bounds("name = \"bids\""), 100);
        assert_eq!(bounds("name = \"bids\"\nversions = 1"), 1);
        assert_eq!(bounds("name = \"bids\"\nversions = 500"), 100);
    }
}
