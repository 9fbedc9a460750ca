//! Draws the content of a tree from a seed. Pure: the same seed gives the same tree on every machine.

use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;

/// The size of a block in bytes; holes consist of whole blocks.
pub const BLOCK: u64 = 4096;

/// The longest name that Linux file systems allow, in bytes.
const NAME_MAX: usize = 255;

/// Names that cause problems for tools: separators of lists, patterns, options, bytes that are not text.
const ODD_NAMES: [&[u8]; 18] = [
    b"a b",
    b" lead",
    b"trail ",
    b"new\nline",
    b"tab\there",
    b"-rf",
    b"--delete",
    b"quote\"s'",
    b"back\\slash",
    b"star*[x]{y}?",
    b"#hash",
    b"dollar$HOME",
    b"latin-\xe9\xfc",
    b"cut-\xe2\x82",
    b"\xff\xfe",
    "gr\u{fc}n\u{1f33f}".as_bytes(),
    b"...",
    b"semi;colon|pipe&",
];

/// Modes of files, including set-user-ID and unreadable ones.
const FILE_MODES: [u32; 12] =
    [0o644, 0o644, 0o644, 0o600, 0o640, 0o755, 0o400, 0o444, 0o222, 0o000, 0o4755, 0o2755];
/// Modes of directories, some of which cannot be entered or written.
const DIRECTORY_MODES: [u32; 10] =
    [0o755, 0o755, 0o755, 0o700, 0o750, 0o500, 0o555, 0o1777, 0o2775, 0o000];

/// Seconds since 1970: 1901, 1969, 1970, 2001, 2038 and one second later, 2100, 2262-04-12 (beyond 64 bits of ns), 2446
/// (the last time of ext4), and 2023.
const DATES: [i64; 10] = [
    -2_147_483_648,
    -1,
    0,
    1_000_000_000,
    2_147_483_647,
    2_147_483_648,
    4_102_444_800,
    9_223_372_037,
    15_032_385_535,
    1_700_000_000,
];

/// Owners other than the creator of the tree: some of this system, one of another system, and a very large one.
const OWNERS: [u32; 5] = [1, 33, 1000, 54_321, 4_000_000_000];

/// A tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tree {
    /// The entries by relative path without a leading slash; the root has the empty path. Directories come before their
    /// content.
    pub entries: BTreeMap<Vec<u8>, DrawnEntry>,
}

/// An entry of a tree.
#[derive(Clone, Debug, PartialEq)]
pub struct DrawnEntry {
    /// The kind of the entry.
    pub kind: DrawnKind,
    /// Permissions with set-ID and sticky bits; meaningless for symbolic links.
    pub mode: u32,
    /// User and group; `None` for those of the creator.
    pub owner: Option<(u32, u32)>,
    /// Seconds since 1970 and nanoseconds.
    pub modified: (i64, u32),
    /// Extended attributes by name.
    pub xattrs: BTreeMap<&'static str, Vec<u8>>,
}

/// The kind of an entry.
#[derive(Clone, Debug, PartialEq)]
pub enum DrawnKind {
    Directory,
    /// A file with data in these ranges and holes elsewhere. The bytes are derived from the seed.
    File {
        /// The length in bytes.
        length: u64,
        /// The start and the end of each range.
        data: Vec<(u64, u64)>,
        /// The seed of the bytes.
        seed: u64,
    },
    /// Another name of the file with this path.
    SameAs(Vec<u8>),
    /// A symbolic link with this text.
    Link(Vec<u8>),
    /// A symbolic link to this path of the tree, by its absolute name.
    LinkInside(Vec<u8>),
    /// A pipe.
    Fifo,
    /// A socket on which no process listens.
    Socket,
}

/// What a tree may contain.
#[derive(Clone, Copy, Debug)]
pub struct AllowedEntries {
    /// Owners other than the creator.
    pub owners: bool,
}

/// Draws the tree of a seed.
pub fn draw(seed: u64, allowed: AllowedEntries) -> Tree {
    let random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut draw = TreeBuilder {
        random,
        allowed,
        tree: Tree::default(),
        directories: vec![Vec::new()],
        files: vec![],
    };
    let root = draw.draw_entry(DrawnKind::Directory, 0o755);
    draw.tree.entries.insert(Vec::new(), root);
    for _ in 0..draw.between(20, 60) {
        draw.add_random();
    }
    if draw.chance(4) {
        draw.add_many_files();
    }
    draw.tree
}

struct TreeBuilder {
    random: Xoshiro256PlusPlus,
    allowed: AllowedEntries,
    tree: Tree,
    directories: Vec<Vec<u8>>,
    files: Vec<Vec<u8>>,
}

impl TreeBuilder {
    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.random.next_u64()) * u128::from(n)) >> 64) as u64
    }

    fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from)
    }

    /// True with a probability of 1 in `n`.
    fn chance(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// Adds an entry of a random kind.
    fn add_random(&mut self) {
        match self.below(20) {
            0..=3 => self.add_directory(),
            4..=9 => self.add_file(),
            10 | 11 => self.add_sparse_file(),
            12 | 13 => self.add_hard_link(),
            14..=16 => self.add_symlink(),
            17 => self.add(DrawnKind::Fifo, 0o640),
            18 => self.add(DrawnKind::Socket, 0o600),
            _ => self.add_file(),
        }
    }

    fn add_directory(&mut self) {
        let mode = self.pick(&DIRECTORY_MODES);
        if let Some(path) = self.add_entry(DrawnKind::Directory, mode) {
            self.directories.push(path);
        }
    }

    fn add_file(&mut self) {
        let length = match self.below(6) {
            0 => 0,
            1 => 1,
            2 => self.between(2, 5000),
            3 => self.between(BLOCK - 1, BLOCK + 2),
            4 => self.between(5000, 60_000),
            _ => self.between(60_000, 600_000),
        };
        let (mode, seed) = (self.pick(&FILE_MODES), self.random.next_u64());
        let data = if length > 0 { vec![(0, length)] } else { vec![] };
        if let Some(path) = self.add_entry(DrawnKind::File { length, data, seed }, mode) {
            self.files.push(path);
        }
    }

    /// Adds a file with holes before, between and after its data. Some files are one hole, and one in four is far
    /// larger than its data.
    fn add_sparse_file(&mut self) {
        let blocks =
            if self.chance(4) { self.between(5000, 20_000) } else { self.between(20, 400) };
        let mut data = Vec::new();
        let mut at = self.below(blocks / 2);
        while at < blocks && data.len() < 6 {
            let to = (at + self.between(1, 6)).min(blocks);
            data.push((at * BLOCK, to * BLOCK));
            at = to + self.between(4, blocks / 4 + 6);
        }
        if self.chance(6) {
            data.clear();
        }
        let length = blocks * BLOCK + self.pick(&[0, 0, 17]);
        let seed = self.random.next_u64();
        if let Some(path) = self.add_entry(DrawnKind::File { length, data, seed }, 0o644) {
            self.files.push(path);
        }
    }

    /// Adds another name of an existing file.
    fn add_hard_link(&mut self) {
        if self.files.is_empty() {
            return self.add_file();
        }
        let n = self.below(self.files.len() as u64) as usize;
        let first = self.files[n].clone();
        let Some(path) = self.draw_name() else { return };
        let entry = DrawnEntry {
            kind: DrawnKind::SameAs(first.clone()),
            ..self.tree.entries[&first].clone()
        };
        self.tree.entries.insert(path, entry);
    }

    fn add_symlink(&mut self) {
        let kind = match self.below(5) {
            0 => DrawnKind::Link(b"../nowhere/at all".to_vec()),
            1 => DrawnKind::Link(b"/etc/hostname".to_vec()),
            2 => {
                let n = self.below(self.directories.len() as u64) as usize;
                DrawnKind::LinkInside(self.directories[n].clone())
            }
            3 => DrawnKind::Link(vec![b'x'; self.between(1, 900) as usize]),
            _ => match self.files.last() {
                Some(file) => {
                    let name = file.rsplit(|byte| *byte == b'/').next().unwrap_or(file);
                    DrawnKind::Link(name.to_vec())
                }
                None => DrawnKind::Link(b".".to_vec()),
            },
        };
        self.add(kind, 0o777);
    }

    /// Adds many small files in one directory.
    fn add_many_files(&mut self) {
        let Some(directory) = self.add_entry(DrawnKind::Directory, 0o755) else { return };
        for number in 0..self.between(200, 600) {
            let mut path = directory.clone();
            path.extend_from_slice(format!("/small-{number:05}").as_bytes());
            let (length, seed) = (self.below(900), self.random.next_u64());
            let data = if length > 0 { vec![(0, length)] } else { vec![] };
            let entry = self.draw_entry(DrawnKind::File { length, data, seed }, 0o644);
            self.tree.entries.insert(path, entry);
        }
    }

    fn add(&mut self, kind: DrawnKind, mode: u32) {
        _ = self.add_entry(kind, mode);
    }

    fn add_entry(&mut self, kind: DrawnKind, mode: u32) -> Option<Vec<u8>> {
        let path = self.draw_name()?;
        let entry = self.draw_entry(kind, mode);
        self.tree.entries.insert(path.clone(), entry);
        Some(path)
    }

    /// Draws a new path in some directory; `None` if it exists already.
    fn draw_name(&mut self) -> Option<Vec<u8>> {
        let n = self.below(self.directories.len() as u64) as usize;
        let mut path = self.directories[n].clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        let number = self.tree.entries.len();
        match self.below(8) {
            0 => {
                let name = self.pick(&ODD_NAMES);
                path.extend_from_slice(name);
            }
            1 if path.len() < 1000 => {
                let mut name = format!("{number:03}-").into_bytes();
                name.resize(NAME_MAX, b'n');
                path.extend_from_slice(&name);
            }
            2 => path.extend_from_slice(format!(".hidden{number}").as_bytes()),
            _ => path.extend_from_slice(format!("e{number}").as_bytes()),
        }
        (!self.tree.entries.contains_key(&path)).then_some(path)
    }

    fn draw_entry(&mut self, kind: DrawnKind, mode: u32) -> DrawnEntry {
        let seconds = if self.chance(3) {
            self.pick(&DATES)
        } else {
            self.between(1_500_000_000, 1_750_000_000) as i64
        };
        let nanos = match self.below(4) {
            0 => 0,
            1 => 1,
            2 => 999_999_999,
            _ => self.below(1_000_000_000) as u32,
        };
        let is_link = matches!(kind, DrawnKind::Link(_) | DrawnKind::LinkInside(_));
        let owner = (self.allowed.owners && self.chance(5))
            .then(|| (self.pick(&OWNERS), self.pick(&OWNERS)));
        let is_special = matches!(kind, DrawnKind::Fifo | DrawnKind::Socket);
        let xattrs = if is_link || is_special { BTreeMap::new() } else { self.draw_xattrs(&kind) };
        DrawnEntry { kind, mode, owner, modified: (seconds, nanos), xattrs }
    }

    fn draw_xattrs(&mut self, kind: &DrawnKind) -> BTreeMap<&'static str, Vec<u8>> {
        let mut all = BTreeMap::new();
        if self.chance(6) {
            all.insert("user.comment", b"a \0 byte and \xff".to_vec());
        }
        if self.chance(12) {
            all.insert("user.empty", Vec::new());
        }
        if self.chance(12) {
            let length = self.between(100, 1500);
            all.insert("user.long", (0..length).map(|i| i as u8).collect());
        }
        if self.chance(8) {
            all.insert("system.posix_acl_access", self.draw_acl());
        }
        if *kind == DrawnKind::Directory && self.chance(8) {
            all.insert("system.posix_acl_default", self.draw_acl());
        }
        all
    }

    /// An ACL in the kernel's format: version 2, then tag, permissions and id of each entry, sorted by tag and id
    /// (linux/posix_acl_xattr.h).
    fn draw_acl(&mut self) -> Vec<u8> {
        const NOBODY: u32 = u32::MAX;
        let user = self.pick(&OWNERS);
        let group = self.pick(&OWNERS);
        let entries: [(u16, u16, u32); 6] = [
            (0x01, 7, NOBODY),
            (0x02, 5, user),
            (0x04, 5, NOBODY),
            (0x08, self.below(8) as u16, group),
            (0x10, 7, NOBODY),
            (0x20, self.below(6) as u16, NOBODY),
        ];
        let mut bytes = 2u32.to_le_bytes().to_vec();
        for (tag, rights, number) in entries {
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&rights.to_le_bytes());
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes
    }
}

/// The bytes of a range of a file's data, derived from its seed.
pub fn bytes(seed: u64, from: u64, to: u64) -> Vec<u8> {
    let mut bytes = vec![0; (to - from) as usize];
    Xoshiro256PlusPlus::seed_from_u64(seed ^ from).fill_bytes(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: AllowedEntries = AllowedEntries { owners: true };

    #[test]
    fn the_seed_determines_the_tree() {
        for seed in 0..20 {
            assert_eq!(draw(seed, ALLOWED), draw(seed, ALLOWED), "seed {seed}");
            assert_ne!(draw(seed, ALLOWED), draw(seed + 1, ALLOWED), "seed {seed}");
        }
    }

    #[test]
    fn two_hundred_trees_contain_every_kind_of_entry() {
        let trees: Vec<Tree> = (1..=200).map(|seed| draw(seed, ALLOWED)).collect();
        let entries = || trees.iter().flat_map(|tree| tree.entries.iter());
        let has = |what: &dyn Fn(&Vec<u8>, &DrawnEntry) -> bool| {
            let n = entries().filter(|(path, entry)| what(path, entry)).count();
            assert!(n >= 10, "only {n}");
        };
        has(&|path, e| {
            e.kind == DrawnKind::Directory
                && !entries().any(|(p, _)| p.starts_with(path) && p.len() > path.len())
        });
        has(
            &|_, e| matches!(&e.kind, DrawnKind::File { length, data, .. } if data.len() > 1 && *length > 80_000),
        );
        has(
            &|_, e| matches!(&e.kind, DrawnKind::File { length, data, .. } if *length > 0 && data.is_empty()),
        );
        has(&|_, e| matches!(e.kind, DrawnKind::SameAs(_)));
        has(&|_, e| matches!(e.kind, DrawnKind::Link(_)));
        has(&|_, e| matches!(e.kind, DrawnKind::LinkInside(_)));
        has(&|_, e| e.kind == DrawnKind::Fifo);
        has(&|_, e| e.kind == DrawnKind::Socket);
        has(&|path, _| std::str::from_utf8(path).is_err());
        has(&|path, _| path.len() >= NAME_MAX);
        has(&|_, e| e.mode & 0o7000 != 0);
        has(&|_, e| e.kind == DrawnKind::Directory && e.mode & 0o500 != 0o500);
        has(&|_, e| e.modified.0 < 0);
        has(&|_, e| e.modified.0 > 9_223_372_036);
        has(&|_, e| e.modified.1 == 999_999_999);
        has(&|_, e| e.owner.is_some());
        for name in
            ["user.empty", "user.long", "system.posix_acl_access", "system.posix_acl_default"]
        {
            has(&|_, e| e.xattrs.contains_key(name));
        }
    }

    #[test]
    fn parents_come_first_and_are_directories() {
        for seed in 0..50 {
            let tree = draw(seed, ALLOWED);
            for path in tree.entries.keys().filter(|path| !path.is_empty()) {
                let parent =
                    path.iter().rposition(|byte| *byte == b'/').map_or(&[][..], |at| &path[..at]);
                assert_eq!(tree.entries[parent].kind, DrawnKind::Directory, "seed {seed}");
                let name = &path[if parent.is_empty() { 0 } else { parent.len() + 1 }..];
                assert!(name.len() <= NAME_MAX && name != b"." && name != b"..");
            }
        }
    }
}
