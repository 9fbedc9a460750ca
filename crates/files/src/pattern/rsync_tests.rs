//! Compares [`Excludes`] with rsync on random trees and random lists of patterns.
//!
//! `THALWEG_PATTERNS=10000` sets the number of cases, `THALWEG_SEED` the first seed.

use super::Excludes;
use std::{
    collections::BTreeSet, ffi::OsStr, fs, os::unix::ffi::OsStrExt as _, path::Path,
    process::Command,
};

/// A random number generator that is determined by its seed (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, most: usize) -> usize {
        (self.next() % most as u64) as usize
    }

    fn one_in(&mut self, number: usize) -> bool {
        self.below(number) == 0
    }

    fn of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len())]
    }
}

const NAMES: [&[u8]; 28] = [
    b"a",
    b"b",
    b"c",
    b"A",
    b"7",
    b"x",
    b"ab",
    b".",
    b"-",
    b"[",
    b"]",
    b"{",
    b"}",
    b",",
    b"!",
    b"^",
    b"\\",
    b"*",
    b"?",
    b" ",
    b":",
    b"\xff",
    b"\xc3\xa9",
    b".o",
    b"log",
    b"+ ",
    b"- ",
    b"#",
];

const WILD: [&[u8]; 24] = [
    b"*",
    b"**",
    b"***",
    b"?",
    b"/",
    b"/",
    b"/**",
    b"**/",
    b"/***",
    b"[ab]",
    b"[!a]",
    b"[^a-c]",
    b"[a-x]",
    b"[[:digit:]]",
    b"[[:upper:]7]",
    b"[[:alnum:]_-]",
    b"[]a]",
    b"[\\]a]",
    b"[[:no:]]",
    b"[",
    b"\\",
    b"\\*",
    b"[--b]",
    b"[[:a]",
];

fn name(random: &mut Random) -> Vec<u8> {
    loop {
        let parts = 1 + random.below(3);
        let name: Vec<u8> = (0..parts).flat_map(|_| random.of(&NAMES).to_vec()).collect();
        if name != b"." && name != b".." {
            return name;
        }
    }
}

/// A random tree: paths, and whether each is a directory; parents come first.
fn tree(random: &mut Random) -> Vec<(Vec<u8>, bool)> {
    let mut all = vec![(b"top".to_vec(), true)];
    for _ in 0..8 + random.below(24) {
        let directories: Vec<_> = all.iter().filter(|(_, is)| *is).collect();
        let above = directories[random.below(directories.len())].0.clone();
        let path = [&above[..], b"/", &name(random)].concat();
        if !all.iter().any(|(known, _)| *known == path) {
            all.push((path, random.one_in(3)));
        }
    }
    all
}

/// A random pattern: of random pieces, or a path of the tree with some bytes changed.
fn pattern(random: &mut Random, tree: &[(Vec<u8>, bool)]) -> Vec<u8> {
    if random.one_in(2) {
        let pieces = random.below(5);
        let piece = |random: &mut Random| match random.one_in(2) {
            true => random.of(&WILD).to_vec(),
            false => name(random),
        };
        return (0..pieces).flat_map(|_| piece(random)).collect();
    }
    let path = &tree[random.below(tree.len())].0;
    let cuts: Vec<usize> = (0..path.len()).filter(|at| path[*at] == b'/').collect();
    let from = if cuts.is_empty() || random.one_in(4) { 0 } else { cuts[random.below(cuts.len())] };
    let from = if random.one_in(2) && path[from] == b'/' { from + 1 } else { from };
    let mut pattern = path[from..].to_vec();
    for _ in 0..random.below(3) {
        let at = random.below(pattern.len() + 1);
        let end = (at + random.below(3)).min(pattern.len());
        pattern.splice(at..end, random.of(&WILD).to_vec());
    }
    if random.one_in(5) {
        pattern.push(b'/');
    }
    pattern
}

fn patterns(random: &mut Random, tree: &[(Vec<u8>, bool)]) -> Vec<Vec<u8>> {
    let one = |random: &mut Random| {
        let pattern = pattern(random, tree);
        match random.below(20) {
            0 => [b"+ ", &pattern[..]].concat(),
            1 => [b"- ", &pattern[..]].concat(),
            2 => b"!".to_vec(),
            _ => pattern,
        }
    };
    let mut all: Vec<_> = (0..1 + random.below(4)).map(|_| one(random)).collect();
    // Both rsync and Thalweg refuse these.
    all.retain(|pattern| !matches!(&pattern[..], b"- " | b"+ "));
    all
}

fn make(dir: &Path, tree: &[(Vec<u8>, bool)]) {
    for (path, is_directory) in tree {
        let path = dir.join(OsStr::from_bytes(path));
        match is_directory {
            true => fs::create_dir(path).unwrap(),
            false => fs::write(path, "").unwrap(),
        }
    }
}

/// The paths of `top` (with `content`: of its content) that rsync would transfer.
fn by_rsync(dir: &Path, into: &Path, patterns: &[Vec<u8>], content: bool) -> BTreeSet<Vec<u8>> {
    let mut command = Command::new("rsync");
    command.args(["-rn", "--out-format=%n"]).env("LC_ALL", "C");
    for pattern in patterns {
        command.arg("--exclude").arg(OsStr::from_bytes(pattern));
    }
    command.arg(dir.join(if content { "top/" } else { "top" })).arg(into);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{patterns:?}: {output:?}");
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let shown = lines.map(unescaped).filter(|line| line != b"./");
    shown.map(|line| line.strip_suffix(b"/").map_or(line.clone(), <[u8]>::to_vec)).collect()
}

/// Decodes the `\#ooo` by which rsync escapes some bytes.
fn unescaped(line: &[u8]) -> Vec<u8> {
    let (mut plain, mut rest) = (Vec::new(), line);
    while let Some((first, behind)) = rest.split_first() {
        let octal = behind.strip_prefix(b"#").and_then(|b| b.get(..3));
        let code = octal.filter(|o| *first == b'\\' && o.iter().all(u8::is_ascii_digit));
        let code = code.and_then(|o| u8::from_str_radix(std::str::from_utf8(o).ok()?, 8).ok());
        plain.push(code.unwrap_or(*first));
        rest = if code.is_some() { &behind[4..] } else { behind };
    }
    plain
}

/// The paths that Thalweg would transfer; paths below an excluded directory are not looked at.
fn by_us(tree: &[(Vec<u8>, bool)], patterns: &[Vec<u8>], content: bool) -> BTreeSet<Vec<u8>> {
    let excludes = Excludes::new(patterns).unwrap();
    let mut taken: BTreeSet<Vec<u8>> = BTreeSet::new();
    for (path, is_directory) in tree {
        let path = match (content, path.strip_prefix(b"top/")) {
            (true, Some(below)) => below,
            (true, None) => continue,
            (false, _) => path,
        };
        let above = path.iter().rposition(|byte| *byte == b'/').map(|at| &path[..at]);
        let is_reached = above.is_none_or(|above| taken.contains(above));
        if is_reached && !excludes.leaves_out(path, *is_directory) {
            taken.insert(path.to_vec());
        }
    }
    taken
}

#[test]
fn the_same_paths_are_excluded_as_by_rsync() {
    if Command::new("rsync").arg("--version").output().is_err() {
        return eprintln!("SKIPPED: there is no rsync here");
    }
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (cases, first) = (number("THALWEG_PATTERNS", 150), number("THALWEG_SEED", 1));
    eprintln!("{cases} trees and lists of patterns from seed {first} on");
    let mut differing = 0;
    for seed in first..first + cases {
        let mut random = Random(seed);
        let dir = tempfile::tempdir().unwrap();
        let into = dir.path().join("into");
        fs::create_dir(&into).unwrap();
        let tree = tree(&mut random);
        make(dir.path(), &tree);
        let patterns = patterns(&mut random, &tree);
        let content = random.one_in(2);
        let theirs = by_rsync(dir.path(), &into, &patterns, content);
        let ours = by_us(&tree, &patterns, content);
        let shown = |paths: Vec<&Vec<u8>>| {
            paths.iter().map(|p| p.escape_ascii().to_string()).collect::<Vec<_>>().join("  ")
        };
        if ours != theirs {
            differing += 1;
            let list = shown(patterns.iter().collect());
            let (more, less) = (ours.difference(&theirs), theirs.difference(&ours));
            eprintln!("seed {seed}, content {content}, patterns {list}");
            eprintln!("  only we take: {}", shown(more.collect()));
            eprintln!("  only rsync takes: {}", shown(less.collect()));
        }
    }
    assert_eq!(differing, 0, "of {cases}");
}
