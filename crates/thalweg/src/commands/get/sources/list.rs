//! Lists of URLs: a file, or standard input.

use super::{Item, Wish, below};
use crate::commands::get::{
    args::{Naming, Output},
    exit::Code,
};
use anyhow::Context as _;
use std::{
    fmt::Write as _,
    fs::File,
    io::{self, Read},
    path::Path,
    sync::Arc,
};
use thalweg_wire::text_encoding;

/// The longest list: half a million URLs, and no endless pipe fills the memory.
const MAX_BYTES: u64 = 64 << 20;

/// The items of a list; `-` is standard input. It is read to its end first.
///
/// # Errors
/// If it cannot be read or is too long.
pub fn read(file: &Path, naming: &Naming) -> anyhow::Result<Vec<Item>> {
    let name = match file.as_os_str() == "-" {
        true => "standard input".to_owned(),
        false => file.display().to_string(),
    };
    let text = contents(file).with_context(|| format!("cannot read URLs from {name}"))?;
    let name: Arc<str> = name.into();
    let item = |(i, line)| item(line, i + 1, &name, naming);
    let items: Vec<Item> = text.lines().enumerate().filter_map(item).collect();
    anyhow::ensure!(!items.is_empty(), "no URLs in {name}");
    Ok(items)
}

fn contents(file: &Path) -> io::Result<String> {
    let source: Box<dyn Read> = match file.as_os_str() == "-" {
        true => Box::new(io::stdin().lock()),
        false => Box::new(File::open(file)?),
    };
    let mut bytes = Vec::new();
    source.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("it is longer than {} MB", MAX_BYTES >> 20)));
    }
    let text =
        text_encoding::decode(&bytes).map_or_else(|| latin(&bytes), |text| text.into_owned());
    // Old systems end lines by CR alone.
    Ok(if text.contains('\n') { text } else { text.replace('\r', "\n") })
}

/// A list in some code page: URLs keep their octets, percent-encoded, and names are read as Latin-1.
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

/// `URL`, `URL<TAB>NAME`, a comment, or nothing.
fn item(line: &str, number: usize, list: &Arc<str>, naming: &Naming) -> Option<Item> {
    // Lists that were put together have marks in their middle, and those of DOS an end mark.
    let line = line.trim_start_matches('\u{feff}').trim_end_matches(['\r', '\u{1a}']);
    let (url, name) = match line.split_once('\t') {
        Some((url, name)) => (url.trim(), Some(name.trim()).filter(|name| !name.is_empty())),
        None => (line.trim(), None),
    };
    if url.is_empty() || url.starts_with('#') {
        return None;
    }
    let text = url.to_owned();
    let output = match (naming.of(None), name) {
        (Output::Stdout, _) => Output::Stdout,
        (other, None) => other,
        (_, Some(name)) => match below(naming.directory(), name) {
            Ok(output) => output,
            Err(why) => {
                let why = format!("line {number} of {list}: {why}");
                return Some(Item::mistake(text, why, Code::Usage));
            }
        },
    };
    Some(Item { text, wish: Wish::Url(output), line: Some((Arc::clone(list), number)) })
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
    fn a_line_is_a_url_and_perhaps_a_name() {
        let naming = Cli::parse_from(["get", "-P", "d", "-"]).args.naming;
        let output = |line: &str| match item(line, 1, &"list".into(), &naming)?.wish {
            Wish::Url(output) => Some(output),
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
        assert_eq!((output("\u{feff}# x"), output("\u{1a}")), (None, None));
        let bad = item("http://a/b\t..", 7, &"list".into(), &naming).unwrap().wish;
        assert!(matches!(bad, Wish::Mistake(why, Code::Usage) if why.contains("line 7 of list")));
    }
    #[test]
    fn a_list_in_a_code_page_keeps_its_octets() {
        assert_eq!(latin(b"http://a/\xe9\t\xe9\n\xfc"), "http://a/%E9\t\u{e9}\n%FC");
    }
}
