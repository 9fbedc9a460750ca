//! Lists of URLs, from a file or standard input.

use super::{FoundItems, Item, ItemKind, Wanted, below, parse};
use crate::commands::get::{
    args::{Naming, Output},
    exit::Code,
};
use anyhow::Context as _;
use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs::File,
    io::{self, Read},
    path::Path,
    sync::Arc,
};
use thalweg_part::Digest;
use thalweg_wire::text_encoding;

/// The longest list: half a million URLs. An endless pipe cannot fill the memory.
const MAX_BYTES: u64 = 64 << 20;

/// Adds the items of a list to `found`; `-` is standard input. The list is read to its end first.
///
/// # Errors
/// If it cannot be read or is too long.
pub fn read(file: &Path, naming: &Naming, found: &mut FoundItems) -> anyhow::Result<()> {
    let name = match file.as_os_str() == "-" {
        true => "standard input".to_owned(),
        false => file.display().to_string(),
    };
    let text = contents(file).with_context(|| format!("cannot read URLs from {name}"))?;
    let list: Arc<str> = name.into();
    let (mut is_empty, mut unused) = (true, BTreeSet::new());
    let mut lines =
        text.lines().enumerate().map(|(i, line)| (i + 1, without_marks(line))).peekable();
    while let Some((number, line)) = lines.next() {
        let Some(mut entry) = Entry::read(line) else { continue };
        // The indented lines below an entry are its options, as in aria2.
        while let Some((_, line)) = lines.next_if(|(_, line)| continues_entry(line)) {
            option(line).and_then(|option| entry.set(option)).map(|name| unused.insert(name));
        }
        found.items.push(entry.item(number, &list, naming));
        is_empty = false;
    }
    anyhow::ensure!(!is_empty, "no URLs in {list}");
    if !unused.is_empty() {
        let names: Vec<&str> = unused.into_iter().collect();
        found
            .notes
            .push(format!("unsupported options in {list} are ignored: {}", names.join(", ")));
    }
    Ok(())
}

fn contents(file: &Path) -> io::Result<String> {
    let source: Box<dyn Read> = match file.as_os_str() == "-" {
        true => Box::new(io::stdin().lock()),
        false => Box::new(File::open(file)?),
    };
    let mut bytes = Vec::new();
    source.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("the list is longer than {} MB", MAX_BYTES >> 20)));
    }
    let text =
        text_encoding::decode(&bytes).map_or_else(|| latin(&bytes), |text| text.into_owned());
    // Old systems end lines by CR alone.
    Ok(if text.contains('\n') { text } else { text.replace('\r', "\n") })
}

/// Decodes a list in an unknown code page: octets of URLs are percent-encoded, names are read as Latin-1.
fn latin(bytes: &[u8]) -> String {
    let (mut text, mut in_name) = (String::with_capacity(bytes.len()), false);
    for b in bytes {
        in_name = *b != b'\n' && (in_name || *b == b'\t');
        match b.is_ascii() || in_name {
            true => text.push(char::from(*b)),
            // Writing to a string does not fail.
            false => _ = write!(text, "%{b:02X}"),
        }
    }
    text
}

/// Strips marks from a line: byte order marks, which joined lists have in their middle, and the end mark of DOS.
fn without_marks(line: &str) -> &str {
    line.trim_start_matches('\u{feff}').trim_end_matches(['\r', '\u{1a}'])
}

/// Whether the line belongs to the entry above: an option, or a comment or empty line between options.
fn continues_entry(line: &&str) -> bool {
    let text = line.trim_start();
    option(line).is_some() || text.is_empty() || text.starts_with('#')
}

/// Parses an option: `NAME=VALUE` after a blank.
fn option(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.strip_prefix([' ', '\t'])?.trim().split_once('=')?;
    let is_name = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    is_name.then_some((name, value))
}

/// An entry of a list: `URL`, `URL<TAB>NAME`, or as in aria2: `URL<TAB>URL`, all of one file, with options in the lines
/// below.
#[derive(Debug, Default, PartialEq, Eq)]
struct Entry<'a> {
    url: &'a str,
    /// The same file on other servers.
    others: Vec<&'a str>,
    name: Option<&'a str>,
    directory: Option<&'a str>,
    digests: Vec<Digest>,
}

impl<'a> Entry<'a> {
    /// Parses a line; `None` for comments, empty lines, and options without a URL.
    fn read(line: &'a str) -> Option<Self> {
        if option(line).is_some() {
            return None;
        }
        let mut columns = line.trim_start().split('\t').map(str::trim);
        let url = columns.next().filter(|url| !url.is_empty() && !url.starts_with('#'))?;
        let mut entry = Entry { url, ..Entry::default() };
        let is_url = |text: &&str| text.contains("://");
        match line.trim_start().split_once('\t') {
            Some((_, name)) if !is_url(&name) => {
                entry.name = Some(name.trim()).filter(|name| !name.is_empty());
            }
            _ => entry.others = columns.filter(is_url).collect(),
        }
        Some(entry)
    }

    /// Applies an option. Returns its name if it is not supported.
    fn set(&mut self, (name, value): (&'a str, &'a str)) -> Option<&'a str> {
        match name {
            "out" => self.name = Some(value).filter(|name| !name.is_empty()),
            "dir" => self.directory = Some(value).filter(|name| !name.is_empty()),
            "checksum" => {
                let (kind, hex) = value.split_once('=').unwrap_or_default();
                let kind = kind.to_ascii_lowercase().replace('-', "");
                match format!("{kind}:{hex}").parse() {
                    Ok(digest) => self.digests.push(digest),
                    Err(_) => return Some(name),
                }
            }
            _ => return Some(name),
        }
        None
    }

    fn item(self, number: usize, list: &Arc<str>, naming: &Naming) -> Item {
        let text = self.url.to_owned();
        let line = Some((Arc::clone(list), number));
        let mistake = |why: String| {
            let why = format!("line {number} of {list}: {why}");
            Item::mistake(self.url.to_owned(), why, Code::Usage)
        };
        let output = match self.output(naming) {
            Ok(output) => output,
            Err(why) => return mistake(why),
        };
        if self.others.is_empty() && self.digests.is_empty() {
            return Item { text, kind: ItemKind::Url(output), line };
        }
        let url = match parse(self.url) {
            Ok(url) => url,
            Err(why) => return mistake(why),
        };
        let others = self.others.iter().filter_map(|url| parse(url).ok());
        let wanted = Wanted::of_sources(url, others, self.digests, output);
        Item { text, kind: ItemKind::Wanted(Box::new(wanted)), line }
    }

    fn output(&self, naming: &Naming) -> Result<Output, String> {
        let name = match (naming.output_for(None), self.name, self.directory) {
            (Output::Stdout, ..) => return Ok(Output::Stdout),
            (other, None, None) => return Ok(other),
            (_, Some(name), None) => name.to_owned(),
            (_, Some(name), Some(directory)) => format!("{directory}/{name}"),
            (_, None, Some(directory)) => {
                let url = parse(self.url)?;
                format!("{directory}/{}", url.file_name().map_err(|e| e.to_string())?)
            }
        };
        below(naming.directory(), &name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::get::args::Args;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn a_line_is_a_url_with_an_optional_name() {
        let naming = Cli::parse_from(["get", "-P", "d", "-"]).args.naming;
        let item = |line: &'static str| {
            let entry = Entry::read(without_marks(line))?;
            Some(entry.item(7, &"list".into(), &naming).kind)
        };
        let output = |line: &'static str| match item(line)? {
            ItemKind::Url(output) => Some(output),
            _ => panic!("{line} is a mistake"),
        };
        assert_eq!(output(" http://a/b \r"), Some(Output::Url("d".into())));
        assert_eq!(output("http://a/b\tc d"), Some(Output::Below("d".into(), "c d".into())));
        assert_eq!(
            output("http://a/b\t../../x/.y"),
            Some(Output::Below("d".into(), "x/_y".into()))
        );
        assert_eq!(output("http://a/b\t"), Some(Output::Url("d".into())));
        assert_eq!((output(""), output("# x"), output(" \t ")), (None, None, None));
        assert_eq!(output("\u{feff}http://a/b"), Some(Output::Url("d".into())));
        assert_eq!((output("\u{feff}# x"), output("\u{1a}"), output(" dir=x")), (None, None, None));
        let bad = item("http://a/b\t..").unwrap();
        assert!(
            matches!(bad, ItemKind::Mistake(why, Code::Usage) if why.contains("line 7 of list"))
        );
    }

    #[test]
    fn options_are_read_as_by_aria2() {
        for (line, expected) in [
            ("  out=x y.bin ", Some(("out", "x y.bin"))),
            ("\tdir=/a/b", Some(("dir", "/a/b"))),
            (" max-tries=3", Some(("max-tries", "3"))),
            (" checksum=sha-256=00", Some(("checksum", "sha-256=00"))),
            ("out=x", None),
            ("  http://a/?x=1", None),
            ("  example.org/?x=1", None),
            ("  # x=1", None),
            (" =x", None),
        ] {
            assert_eq!(option(line), expected, "{line}");
        }
        let mut entry = Entry::read("http://a/x\thttp://b/x\t ftp://c/x \n").unwrap();
        assert_eq!((entry.others.as_slice(), entry.name), (&["http://b/x", "ftp://c/x"][..], None));
        let hash = format!("sha-256={}", "0".repeat(64));
        let unused = [("out", "n"), ("dir", "d"), ("checksum", &hash), ("header", "A: b")]
            .map(|option| entry.set(option));
        assert_eq!(unused, [None, None, None, Some("header")]);
        assert_eq!(entry.set(("checksum", "md5=00")), Some("checksum"));
        assert_eq!((entry.name, entry.directory, entry.digests.len()), (Some("n"), Some("d"), 1));
    }

    #[test]
    fn a_list_in_a_code_page_keeps_the_octets_of_urls() {
        assert_eq!(latin(b"http://a/\xe9\t\xe9\n\xfc"), "http://a/%E9\t\u{e9}\n%FC");
    }
}
